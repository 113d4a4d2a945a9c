// Dense product with Q8_0 weights, 1 … 8 tokens: out[token][row] = Σ weight[row][k] · x[token][k].
//
// One block per SM. The matrix is a list of units (16 rows × 256 weights, 4352 bytes), tile after tile; every block, and in
// it every warp, takes an equal contiguous share, so no SM waits for another whatever the shape. Sums of a tile that lies
// in one warp go straight to the output, tiles shared by warps meet in shared memory, tiles shared by blocks in a
// workspace, where the block that comes last adds the parts in a fixed order: results do not depend on timing.
//
// Shapes are compile-time constants: ROWS, COLUMNS (a multiple of 32), TOKENS, DTYPE, WARPS, GRID (the number of blocks),
// WHOLE_TILES (no tile is shared by blocks).

#define TILES ((ROWS + 15) / 16)
#define UNITS ((COLUMNS + 255) / 256)
#define MAX_TOKENS 8
#define JOBS (TOKENS * UNITS)  // blocks of 256 activations
#define BATCH 7               // of them a warp loads before it converts the first
#define LIMIT 32512.0f  // two signed digits, the high one within ±127
#define BLOCK_DIGIT_BYTES 512

struct LinearArgs {
    const void* x;           // [TOKENS, COLUMNS], row stride x_stride elements
    const u8 *quants, *scales;
    void* out;               // [TOKENS, ROWS]
    float* parts;            // workspace [blocks][2][MAX_TOKENS][16]
    u32* counters;           // workspace [TILES], zero between launches
    long long x_stride, out_stride;
};

struct Unit {
    uint4 w[8];
    uint4 d[2];
};

__device__ __forceinline__ Unit load_unit(const LinearArgs& a, long long unit) {
    int lane = threadIdx.x & 31;
    const u8* p = a.quants + unit * 4096 + lane * 16;
    const u8* s = a.scales + unit * 256 + (lane >> 2) * 32;
    Unit u;
#pragma unroll
    for (int k = 0; k < 8; k++) u.w[k] = load_stream(p + k * 512);
    u.d[0] = load_stream(s);
    u.d[1] = load_stream(s + 16);
    return u;
}

// acc[nt][half] += the unit's product for rows r, r + 8 and token slot q (+ 4·nt)
template <int NT>
__device__ __forceinline__ void multiply_unit(const Unit& u, const u8* const (&digits)[NT], const float (&scale)[NT],
                                              float (&acc)[NT][2]) {
    const u32 d0[4] = {u.d[0].x, u.d[0].y, u.d[0].z, u.d[0].w}, d1[4] = {u.d[1].x, u.d[1].y, u.d[1].z, u.d[1].w};
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            uint4 b = *(const uint4*)(digits[n] + pair * 128);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                uint4 w = u.w[2 * pair + k];
                int c[4] = {0, 0, 0, 0};
                mma_s8(c, w.x, w.y, w.z, w.w, k ? b.z : b.x, k ? b.w : b.y);
                sum0 += half_to_float((u16)(d0[pair] >> (16 * k))) * (float)(c[0] * 256 + c[1]);
                sum1 += half_to_float((u16)(d1[pair] >> (16 * k))) * (float)(c[2] * 256 + c[3]);
            }
        }
        acc[n][0] += sum0 * scale[n];
        acc[n][1] += sum1 * scale[n];
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 16 / WARPS) q8_0_linear(const __grid_constant__ LinearArgs a) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ int segment_tile[2 * WARPS];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, q = lane & 3;
#if WHOLE_TILES
    const int block_first = share_start(TILES, blockIdx.x, GRID) * UNITS;
    const int block_last = share_start(TILES, blockIdx.x + 1, GRID) * UNITS;
#else
    const int total = TILES * UNITS;
    const int block_first = share_start(total, blockIdx.x, GRID), block_last = share_start(total, blockIdx.x + 1, GRID);
#endif
    const int first = block_first + share_start(block_last - block_first, warp, WARPS);
    const int last = block_first + share_start(block_last - block_first, warp + 1, WARPS);

    let_next_launch();
    Unit next;  // weights do not depend on the kernels before this one
    if (first < last) next = load_unit(a, first);
    wait_for_previous();

    RawEight raw[BATCH];
    auto load_x = [&](int b) {
        int column = b % UNITS * 256 + lane * 8;
        return column < COLUMNS ? load_eight(a.x, (b / UNITS) * a.x_stride + column) : RawEight{};
    };
#pragma unroll
    for (int k = 0; k < BATCH; k++)
        if (warp + k * WARPS < JOBS) raw[k] = load_x(warp + k * WARPS);

    u8* digits = shared;  // [token][unit]
    float* scales = (float*)(digits + JOBS * BLOCK_DIGIT_BYTES);
    float* segments = scales + ((JOBS + 31) & ~31);  // [warp][2][token][16]
#pragma unroll
    for (int base = 0; base < JOBS; base += WARPS * BATCH) {
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int b = base + k * WARPS + warp;
            if (base + k * WARPS < JOBS && b < JOBS) {
                float v[8];
                to_floats(raw[k], v);
                Integers d = make_integers(v, LIMIT);
                uint2 high, low;
                split_digits(d.n[0], d.n[1], d.n[2], d.n[3], high.x, low.x);
                split_digits(d.n[4], d.n[5], d.n[6], d.n[7], high.y, low.y);
                int g = lane >> 2;  // [g / 2][digit][q][g % 2][8]
                u8* at = digits + b * BLOCK_DIGIT_BYTES + (g >> 1) * 128 + q * 16 + (g & 1) * 8;
                *(uint2*)at = high;
                *(uint2*)(at + 64) = low;
                if (lane == 0) scales[b] = d.scale;
            }
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (base + (k + BATCH) * WARPS + warp < JOBS) raw[k] = load_x(base + (k + BATCH) * WARPS + warp);
    }
    if (lane < 2) segment_tile[warp * 2 + lane] = -1;
    __syncthreads();

    // the lane's column of the product: slot lane / 8, digit lane / 4 % 2; spare slots repeat the last token
    const u8* column[2] = {digits + min(lane >> 3, TOKENS - 1) * UNITS * BLOCK_DIGIT_BYTES + ((lane >> 2) & 1) * 64 + q * 16,
                           digits + min(4 + (lane >> 3), TOKENS - 1) * UNITS * BLOCK_DIGIT_BYTES + ((lane >> 2) & 1) * 64 + q * 16};
    const float* column_scale[2] = {scales + min(q, TOKENS - 1) * UNITS, scales + min(4 + q, TOKENS - 1) * UNITS};
    float acc[2][2] = {};
    for (int n = first; n < last; n++) {
        Unit unit = next;
        if (n + 1 < last) next = load_unit(a, n + 1);
        const int block = n % UNITS, tile = n / UNITS;
        if (TOKENS <= 4) {
            const u8* const ptr[1] = {column[0] + block * BLOCK_DIGIT_BYTES};
            const float s[1] = {column_scale[0][block]};
            float y[1][2] = {{acc[0][0], acc[0][1]}};
            multiply_unit<1>(unit, ptr, s, y);
            acc[0][0] = y[0][0];
            acc[0][1] = y[0][1];
        } else {
            const u8* const ptr[2] = {column[0] + block * BLOCK_DIGIT_BYTES, column[1] + block * BLOCK_DIGIT_BYTES};
            const float s[2] = {column_scale[0][block], column_scale[1][block]};
            multiply_unit<2>(unit, ptr, s, acc);
        }
        if (n + 1 == last || (n + 1) % UNITS == 0) {  // the tile ends here, for this warp
            const bool whole = tile * UNITS >= first && (tile + 1) * UNITS <= last;
            const int side = tile == first / UNITS ? 0 : 1;
            if (!whole && lane == 0) segment_tile[warp * 2 + side] = tile;
#pragma unroll
            for (int nt = 0; nt < 2; nt++) {
                int slot = nt * 4 + q;
                if (slot < TOKENS) {
                    if (whole) {
                        int row = tile * 16 + r;
                        if (row < ROWS) store_element(a.out, slot * a.out_stride + row, acc[nt][0]);
                        if (row + 8 < ROWS) store_element(a.out, slot * a.out_stride + row + 8, acc[nt][1]);
                    } else {
                        float* to = segments + ((warp * 2 + side) * TOKENS + slot) * 16 + r;
                        to[0] = acc[nt][0];
                        to[8] = acc[nt][1];
                    }
                }
                acc[nt][0] = acc[nt][1] = 0.0f;
            }
        }
    }
    __syncthreads();

    // tiles shared by warps: the first segment of a tile adds the following ones
    for (int o = threadIdx.x; o < 2 * WARPS * TOKENS * 16; o += WARPS * 32) {
        const int segment = o / (TOKENS * 16), inner = o % (TOKENS * 16), tile = segment_tile[segment];
        if (tile < 0) continue;
        int before = segment - 1;  // warps without units leave gaps
        while (before >= 0 && segment_tile[before] < 0) before--;
        if (before >= 0 && segment_tile[before] == tile) continue;
        float y = 0.0f;
        for (int k = segment; k < 2 * WARPS; k++) {
            if (segment_tile[k] == tile) y += segments[k * TOKENS * 16 + inner];
            else if (segment_tile[k] >= 0) break;
        }
        const int row = tile * 16 + (inner & 15), token = inner >> 4;
        if (tile * UNITS >= block_first && (tile + 1) * UNITS <= block_last) {
            if (row < ROWS) store_element(a.out, token * a.out_stride + row, y);
        } else {
            const int side = tile == block_first / UNITS ? 0 : 1;
            a.parts[((blockIdx.x * 2 + side) * MAX_TOKENS + token) * 16 + (inner & 15)] = y;
        }
    }

#if !WHOLE_TILES
    // tiles shared by blocks: at most the block's first and last
    const int first_tile = block_first / UNITS, last_tile = (block_last - 1) / UNITS;
    const bool shares_first = first_tile * UNITS < block_first || (first_tile + 1) * UNITS > block_last;
    const bool shares_last = last_tile != first_tile && (last_tile + 1) * UNITS > block_last;
    __shared__ int is_last[2];
    if (!shares_first && !shares_last) return;
    __threadfence();
    __syncthreads();
    auto block_of = [&](int unit) { return share_owner(total, unit, GRID); };
    if (threadIdx.x < 2) {
        const int tile = threadIdx.x ? last_tile : first_tile;
        is_last[threadIdx.x] = 0;
        if (threadIdx.x ? shares_last : shares_first) {
            const u32 blocks = block_of((tile + 1) * UNITS - 1) - block_of(tile * UNITS) + 1;
            if (atomicAdd(&a.counters[tile], 1u) == blocks - 1) {
                a.counters[tile] = 0;
                is_last[threadIdx.x] = 1;
            }
            __threadfence();
        }
    }
    __syncthreads();
    for (int o = threadIdx.x; o < 2 * TOKENS * 16; o += WARPS * 32) {
        const int side = o / (TOKENS * 16), inner = o % (TOKENS * 16), tile = side ? last_tile : first_tile;
        if (!is_last[side]) continue;
        const int row = tile * 16 + (inner & 15), token = inner >> 4;
        const int begin = block_of(tile * UNITS), end = block_of((tile + 1) * UNITS - 1);
        float y = 0.0f;
        for (int b = begin; b <= end; b++) {
            const int its_side = share_start(total, b, GRID) / UNITS == tile ? 0 : 1;
            y += __ldcg(&a.parts[((b * 2 + its_side) * MAX_TOKENS + token) * 16 + (inner & 15)]);
        }
        if (row < ROWS) store_element(a.out, token * a.out_stride + row, y);
    }
#endif
}
