"""The wire: frames, headers, versions and guarded decoding of Kafka's protocol on the server's side. No I/O."""
