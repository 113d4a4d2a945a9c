// How a lane's twelve words become codebook offsets and byte fragments. Plain C++: tests/test_decode_host.py compiles this
// file for the CPU and compares every weight with the reference. Arguments named L and c are compile-time constants after
// unrolling. The word layout is described in layout/iq1_s.py.

// Address of lookup L's codebook entry. The codebook is aligned to its 8192 bytes, so that its address is merged by the
// same three-input logic operation that masks the index.
__device__ __forceinline__ u32 entry_address(const u32 (&w)[12], int L, u32 codebook) {
    if (L >= 22) {  // ten bits in the spare bits of word L − 22, the lowest in word 10
        int i = L - 22, at = i < 8 ? 24 + i : i - 8;
        u32 low = (__funnelshift_r(w[10], w[10], (at + 30) & 31) & 4u) | codebook;
        return (__funnelshift_r(w[i], w[i], 21) & 0x1ff8u) | low;
    }
    return ((L & 1) ? (w[L >> 1] >> 11) & 0x1ffcu : w[L >> 1] & 0x1ffcu) | codebook;
}

// 2s + 1 of nibble c of the scale word.
__device__ __forceinline__ u32 odd_scale(u32 scale_word, int c) {
    u32 twice = c ? scale_word >> (4 * c - 1) : scale_word << 1;
    return (twice & 14u) | 1u;
}

// (2s + 1) · (8 ∓ 1) in all four bytes: what a group's sum of activations is multiplied with (and subtracted), because
// the codes are one above the codebook's values and eight times the shift is ±1.
__device__ __forceinline__ u32 group_sum_weight(u32 scale_word, int c, u32 odd) {
    u32 minus = (scale_word >> (4 * c + 2)) & 2u;  // 2 where the shift is −1/8
    return odd * (minus * 0x01010101u + 0x07070707u);
}

// Codebook entry (byte j = a + 4b, the codes of weights j and j + 4) → one fragment of bytes (2s + 1)(a + 4b) ≤ 150 and one
// of 4(2s + 1)b ≤ 120. Masking only the second saves an instruction per lookup; the activations make up for it: with
// 8·x_a beside the first and 2·x_b − 8·x_a beside the second, the sum is 8(2s + 1)(a·x_a + b·x_b).
__device__ __forceinline__ u32 both_fours(u32 entry, u32 odd) { return entry * odd; }
__device__ __forceinline__ u32 last_four(u32 entry, u32 odd) { return (entry & 0x0c0c0c0cu) * odd; }
