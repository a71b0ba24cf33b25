"""Writes to asyncio streams whose connection may have ended."""

from asyncio import StreamWriter


def write(writer: StreamWriter, data: bytes) -> None:
    """Write to a stream, as ``StreamWriter.write`` does; the caller drains.

    Raises:
        ConnectionResetError: the connection was closed, by this side or by an error. asyncio's transports drop the
            bytes then, and those of uvloop raise a RuntimeError.
    """
    if writer.is_closing():
        raise ConnectionResetError("the connection was closed")
    writer.write(data)
