// How an integer becomes operands of an int8 product. Plain C++: tests/test_decode_host.py compiles this file for the CPU.

// Four 16-bit integers as two signed base-256 digits each: n = 256 · high + low.
__device__ __forceinline__ void split_digits(u32 n0, u32 n1, u32 n2, u32 n3, u32& high, u32& low) {
    low = __byte_perm(__byte_perm(n0, n1, 0x0040), __byte_perm(n2, n3, 0x0040), 0x5410);
    // 128 more, so that the digit above is rounded, not cut
    high = __byte_perm(__byte_perm(n0 + 128, n1 + 128, 0x0051), __byte_perm(n2 + 128, n3 + 128, 0x0051), 0x5410);
}
