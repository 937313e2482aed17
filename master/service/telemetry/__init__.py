"""OpenTelemetry: recoveries as traces, Events as logs. Needs the extra `otel`, and is off unless OTEL_* ask for it."""
