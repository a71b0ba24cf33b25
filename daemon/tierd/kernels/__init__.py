"""Loops over raw bytes and their arithmetic: numbers in, numbers out, no I/O."""

from tierd.kernels.checksums import combine_crc32c, crc32c, crc32c_of_file, crc32c_of_range

__all__ = ["combine_crc32c", "crc32c", "crc32c_of_file", "crc32c_of_range"]
