"""What `outrider doctor` checks on this machine and on a cluster. Each check yields findings and changes nothing."""
