"""What a report shows of a job after its pods are gone."""
