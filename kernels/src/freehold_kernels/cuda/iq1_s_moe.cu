// Routed experts with IQ1_S weights, few tokens: gate and up → activation → down → weighted sum, in one launch.
//
// One block per SM. Each block groups the (token, expert) pairs by expert, turns the tokens into integer digits, and keeps
// the codebook in shared memory. Phase 1: items are (expert, 16 gate rows + 16 up rows); the warps split K. Grid barrier.
// Phase 2: items are 32 output rows over all experts in use, so the weighted sum needs no atomics and no second pass.
//
// A unit is 32 rows × 256 weights = 1600 bytes. Lane (r, q) holds, for the rows r, r+8 of two 16-row tiles, the codebook
// indices of groups q and 4+q: 32 lookups. A lookup returns eight weights as codes u = 0, 1, 2 in 2-bit fields (bits 0 and
// 3 of each byte), so mask and multiply give 8u(2s+1) as bytes: a tensor-core fragment. With q = (2s+1)·(8 ∓ 1),
//   8 · Σ (2s+1)(g + δ) x = Σ 8u(2s+1) x − Σ q · (sum of x over the group),
// and the second sum is one more product whose k-slots hold the group sums. Eight columns of the product carry two digits
// of four tokens.

//
// Shapes are compile-time constants (launch.py passes them to NVRTC): BLOCKS1 = K1 / 256, WIDTH = expert width I,
// BLOCKS2 = ⌈I / 256⌉, ROWS2 = output rows N2, TOP_K, and WARPS.

#define TILES1 ((WIDTH + 15) / 16)
#define TILES2 ((ROWS2 + 31) / 32)
#define MAX_PAIRS 128
#define MAX_TOKENS 8
#define LIMIT 4064.0f         // keeps |sum of 32| / 256 within 508 = four signed-byte slots
#define UNIT_WORD_BYTES 1536  // 3 × 16 bytes per lane
#define UNIT_SCALE_BYTES 64   // 32 fp16
#define BLOCK_DIGIT_BYTES 576 // 512 digit bytes and 64 bytes of group sums per 256 activations

struct Groups {
    int num_experts;
    int expert[MAX_PAIRS];                // distinct expert
    int num_slots[MAX_PAIRS];             // tokens that chose it
    u8 slot_pair[MAX_PAIRS][MAX_TOKENS];  // pair index by slot
    float pair_weight[MAX_PAIRS];
    u32 leader_mask[4];
    int id[MAX_PAIRS];
};

// Pairs → distinct experts with their pairs. Ids outside [0, num_local) are skipped. A token that names an expert twice
// gets one slot with the summed weight.
__device__ void group_pairs(Groups& g, const int* ids, const float* weights, int num_pairs, int num_local) {
    int p = threadIdx.x;
    if (p < MAX_PAIRS) {
        int id = p < num_pairs ? ids[p] : -1;
        g.id[p] = (id >= 0 && id < num_local) ? id : -1;
        g.pair_weight[p] = p < num_pairs ? weights[p] : 0.0f;
        g.num_slots[p] = 0;
    }
    __syncthreads();
    int slot = 0, leader = p, twin = -1;
    if (p < MAX_PAIRS) {
        int id = g.id[p], token = p / TOP_K, last_token = -1;
        if (id >= 0) {
            for (int o = 0; o < p; o++) {
                if (g.id[o] != id) continue;
                int t = o / TOP_K;
                if (leader == p) leader = o;
                if (t == token) {
                    if (twin < 0) twin = o;
                } else if (t != last_token) {
                    slot++;
                    last_token = t;
                }
            }
        }
        u32 mask = __ballot_sync(FULL_MASK, id >= 0 && leader == p);
        if ((p & 31) == 0) g.leader_mask[p >> 5] = mask;
    }
    __syncthreads();
    if (p < MAX_PAIRS && g.id[p] >= 0) {
        int u = __popc(g.leader_mask[leader >> 5] & ((1u << (leader & 31)) - 1));
        for (int k = 0; k < (leader >> 5); k++) u += __popc(g.leader_mask[k]);
        if (twin >= 0) {
            atomicAdd(&g.pair_weight[twin], weights[p]);
        } else {
            if (leader == p) g.expert[u] = g.id[p];
            g.slot_pair[u][slot] = (u8)p;
            atomicAdd(&g.num_slots[u], 1);
        }
    }
    if (p == 0) {
        g.num_experts = __popc(g.leader_mask[0]) + __popc(g.leader_mask[1]) + __popc(g.leader_mask[2]) + __popc(g.leader_mask[3]);
    }
    __syncthreads();
}

// One warp writes the digits of 256 activations where the products want them:
// [h][j / 2][digit][q][j % 2][8] for weight group 4h + q and codebook row j of it, then the group sums [digit][q][h][4].
__device__ __forceinline__ void write_digits(const float (&v)[8], u8* block, float* scale) {
    int lane = threadIdx.x & 31, group = lane >> 2, j = lane & 3, h = group >> 2, q = group & 3;
    Digits d = make_digits(v, LIMIT);
    u8* at = block + (h * 2 + (j >> 1)) * 128 + q * 16 + (j & 1) * 8;
    *(uint2*)at = make_uint2(d.high[0], d.high[1]);
    *(uint2*)(at + 64) = make_uint2(d.low[0], d.low[1]);
    int sum = d.sum + __shfl_xor_sync(FULL_MASK, d.sum, 1);
    sum += __shfl_xor_sync(FULL_MASK, sum, 2);
    if (j == 0) {
        int high = (128 - sum) >> 8, low = -sum - 256 * high;
        u32 slots = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) slots |= (u32)(((high + k) >> 2) & 255) << (8 * k);  // four parts of `high`
        *(u32*)(block + 512 + q * 8 + h * 4) = slots;
        *(u32*)(block + 544 + q * 8 + h * 4) = (u32)(low & 255);
    }
    if (lane == 0) *scale = d.scale * 0.125f;
}

struct Unit {
    uint4 w[3];
    uint2 d;
};

__device__ __forceinline__ Unit load_unit(const u8* words, const u8* scales, long long unit) {
    int lane = threadIdx.x & 31;
    const u8* p = words + unit * UNIT_WORD_BYTES + lane * 16;
    Unit u;
    u.w[0] = load_stream(p);
    u.w[1] = load_stream(p + 512);
    u.w[2] = load_stream(p + 1024);
    u.d = load_stream_8(scales + unit * UNIT_SCALE_BYTES + (lane >> 2) * 8);
    return u;
}

// out[nt][2·tile + half]: the lane's rows for token slot q (+ 4·nt), without the token's scale.
template <int NT>
__device__ __forceinline__ void multiply_unit(const Unit& unit, const u32* codebook, const u8* const (&digits)[NT],
                                              float (&out)[NT][4]) {
    const u32 w[12] = {unit.w[0].x, unit.w[0].y, unit.w[0].z, unit.w[0].w, unit.w[1].x, unit.w[1].y,
                       unit.w[1].z, unit.w[1].w, unit.w[2].x, unit.w[2].y, unit.w[2].z, unit.w[2].w};
    int c[NT][2][4] = {};
    u32 sums[2][2][2];  // [tile][half][h]: q of the group in all four bytes
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 odd[2][2], odd8[2][2];  // 2s + 1 and eight times that, [tile][half]
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int p = 0; p < 2; p++) {
                odd[t][p] = odd_scale(w[11], (t * 2 + h) * 2 + p);
                odd8[t][p] = odd[t][p] * 8u;
                sums[t][p][h] = group_sum_weight(w[11], (t * 2 + h) * 2 + p, odd[t][p]);
            }
#pragma unroll
        for (int jj = 0; jj < 2; jj++) {
            uint4 b[NT];
#pragma unroll
            for (int n = 0; n < NT; n++) b[n] = *(const uint4*)(digits[n] + (h * 2 + jj) * 128);
#pragma unroll
            for (int k = 0; k < 2; k++)
#pragma unroll
                for (int t = 0; t < 2; t++) {
                    int L = ((t * 2 + h) * 4 + jj * 2 + k) * 2;
                    u32 v0 = *(const u32*)((const u8*)codebook + lookup_offset(w, L));
                    u32 v1 = *(const u32*)((const u8*)codebook + lookup_offset(w, L + 1));
                    u32 a0 = first_four(v0, odd8[t][0]), a1 = first_four(v1, odd8[t][1]);
                    u32 a2 = last_four(v0, odd[t][0]), a3 = last_four(v1, odd[t][1]);
#pragma unroll
                    for (int n = 0; n < NT; n++)
                        mma_u8(c[n][t], a0, a1, a2, a3, k ? b[n].z : b[n].x, k ? b[n].w : b[n].y);
                }
        }
    }
    int lane = threadIdx.x & 31;
    float d[4] = {half_to_float((u16)unit.d.x), half_to_float((u16)(unit.d.x >> 16)), half_to_float((u16)unit.d.y),
                  half_to_float((u16)(unit.d.y >> 16))};
#pragma unroll
    for (int n = 0; n < NT; n++) {
        // the digits pointer names (token, digit lane/4 % 2, q); the sums lie 32 bytes per digit, 8 per q
        const u8* block = digits[n] - ((lane >> 2) & 1) * 64 - (lane & 3) * 16;
        uint2 s = *(const uint2*)(block + 512 + ((lane >> 2) & 1) * 32 + (lane & 3) * 8);
#pragma unroll
        for (int t = 0; t < 2; t++) {
            mma_u8(c[n][t], sums[t][0][0], sums[t][1][0], sums[t][0][1], sums[t][1][1], s.x, s.y);
            out[n][2 * t] = d[2 * t] * (float)(c[n][t][0] * 256 + c[n][t][1]);
            out[n][2 * t + 1] = d[2 * t + 1] * (float)(c[n][t][2] * 256 + c[n][t][3]);
        }
    }
}

__device__ __forceinline__ float activate(float gate, float up, int kind, float beta, float linear_beta) {
    float sigmoid = 1.0f / (1.0f + __expf(-gate));
    if (kind == 0) return gate * sigmoid * up;  // SiLU
    if (linear_beta > 0.0f) up = linear_beta * tanhf(up / linear_beta);
    return beta * tanhf(gate / beta) * sigmoid * up;  // SiTU
}

struct MoeArgs {
    const void* x;           // [tokens, K1], row stride x_stride elements
    const int* ids;          // [tokens, top_k]
    const float* weights;    // [tokens, top_k]
    const u8 *words1, *scales1, *words2, *scales2;
    const u32* codebook;     // [2048]
    float* hidden;           // workspace [pairs, blocks2 · 256]; rows past `width` stay zero
    void* out;               // [tokens, N2]
    u32* barrier;
    long long x_stride, out_stride;
    int dtype, tokens, num_local;
    int activation;          // 0 SiLU, 1 SiTU
    float beta, linear_beta;
    int phases;              // 1, 2, or 3 for both
    int round_items;         // phase 1 items per reduction round
    int chunk_experts;       // phase 2: experts whose digits fit in shared memory together (at most)
};

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) iq1_s_moe(const __grid_constant__ MoeArgs a) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ Groups g;
    u32* codebook = (u32*)shared;  // 8 KiB
    u8* pool = shared + 8192;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, q = lane & 3;
    const int slots = a.tokens;

    group_pairs(g, a.ids, a.weights, a.tokens * TOP_K, a.num_local);
    const int experts = g.num_experts;

    if (a.phases & 1) {
        const int items = experts * TILES1;
        const int mine = items > (int)blockIdx.x ? (items - 1 - blockIdx.x) / gridDim.x + 1 : 0;
        const int rounds = (mine + a.round_items - 1) / a.round_items;
        const int round_units = a.round_items * BLOCKS1;
        const int total = mine * BLOCKS1;  // units of this block, item-major
        // unit v of round k is unit k · round_units + v of the block; warps take v = warp, warp + WARPS, …
        auto address = [&](int n) {
            int item = blockIdx.x + (n / BLOCKS1) * gridDim.x;
            return ((long long)g.expert[item / TILES1] * TILES1 + item % TILES1) * BLOCKS1 + n % BLOCKS1;
        };
        Unit next;
        if (warp < min(round_units, total)) next = load_unit(a.words1, a.scales1, address(warp));

        for (int i = threadIdx.x; i < 512; i += WARPS * 32) ((uint4*)codebook)[i] = ((const uint4*)a.codebook)[i];
        u8* digits = pool;  // [token][block]
        float* scales = (float*)(digits + slots * BLOCKS1 * BLOCK_DIGIT_BYTES);
        float* partial = scales + ((slots * BLOCKS1 + 31) & ~31);  // [2][unit][slot][32]
        for (int b = warp; b < a.tokens * BLOCKS1; b += WARPS) {
            float v[8];
            load_eight(a.x, (b / BLOCKS1) * a.x_stride + (b % BLOCKS1) * 256 + lane * 8, a.dtype, v);
            write_digits(v, digits + b * BLOCK_DIGIT_BYTES, scales + b);
        }
        __syncthreads();

        for (int round = 0; round < rounds; round++) {
            const int first = round * round_units, units = min(round_units, total - first);
            float* part = partial + (round & 1) * round_units * slots * 32;
            for (int v = warp; v < units; v += WARPS) {
                Unit unit = next;
                int ahead = v + WARPS < units ? first + v + WARPS : first + round_units + warp;
                if (ahead < total) next = load_unit(a.words1, a.scales1, address(ahead));
                int local = (first + v) / BLOCKS1, block = v % BLOCKS1;
                int u = (blockIdx.x + local * gridDim.x) / TILES1;
                int count = g.num_slots[u];
                float* to = part + v * slots * 32 + r;
                // lane's column of B: slot lane/8, digit lane/4 % 2; spare slots repeat the first
                auto column = [&](int slot) {
                    int token = g.slot_pair[u][slot < count ? slot : 0] / TOP_K;
                    return digits + (token * BLOCKS1 + block) * BLOCK_DIGIT_BYTES + ((lane >> 2) & 1) * 64 + q * 16;
                };
                auto keep = [&](int slot, const float(&y)[4]) {
                    if (slot >= count) return;
                    float s = scales[g.slot_pair[u][slot] / TOP_K * BLOCKS1 + block];
#pragma unroll
                    for (int k = 0; k < 4; k++) to[slot * 32 + k * 8] = y[k] * s;
                };
                if (count <= 4) {
                    const u8* const ptr[1] = {column(lane >> 3)};
                    float y[1][4];
                    multiply_unit<1>(unit, codebook, ptr, y);
                    keep(q, y[0]);
                } else {
                    const u8* const ptr[2] = {column(lane >> 3), column(4 + (lane >> 3))};
                    float y[2][4];
                    multiply_unit<2>(unit, codebook, ptr, y);
                    keep(q, y[0]);
                    keep(4 + q, y[1]);
                }
            }
            __syncthreads();
            for (int o = threadIdx.x; o < units / BLOCKS1 * slots * 16; o += WARPS * 32) {
                int row = o & 15, slot = (o >> 4) % slots, local = (o >> 4) / slots;
                int item = blockIdx.x + (round * a.round_items + local) * gridDim.x, u = item / TILES1;
                if (slot >= g.num_slots[u]) continue;
                const float* from = part + (local * BLOCKS1 * slots + slot) * 32 + row;
                float gate = 0.0f, up = 0.0f;
                for (int b = 0; b < BLOCKS1; b++) {
                    gate += from[b * slots * 32];
                    up += from[b * slots * 32 + 16];
                }
                int at = item % TILES1 * 16 + row;
                if (at < WIDTH)
                    a.hidden[(long long)g.slot_pair[u][slot] * BLOCKS2 * 256 + at] =
                        activate(gate, up, a.activation, a.beta, a.linear_beta);
            }
        }
    }

    if (a.phases & 2) {
        if (a.phases == 2)
            for (int i = threadIdx.x; i < 512; i += WARPS * 32) ((uint4*)codebook)[i] = ((const uint4*)a.codebook)[i];
        auto address = [&](int tile, int n) {  // unit n of a tile: (expert n / blocks2, block n % blocks2)
            return ((long long)g.expert[n / BLOCKS2] * TILES2 + tile) * BLOCKS2 + n % BLOCKS2;
        };
        const int all_units = experts * BLOCKS2;
        Unit next;
        int loaded = -1;  // which (tile, unit) `next` holds
        // weights do not depend on phase 1: the first are on their way, the rest go to L2, while the blocks meet
        if ((int)blockIdx.x < TILES2) {
            if (warp < all_units) {
                next = load_unit(a.words2, a.scales2, address(blockIdx.x, warp));
                loaded = blockIdx.x * all_units + warp;
            }
#ifndef NO_L2_PREFETCH
            for (int n = warp + WARPS; n < all_units; n += WARPS) {
                long long unit = address(blockIdx.x, n);
                if (lane < 12) prefetch_l2(a.words2 + unit * UNIT_WORD_BYTES + lane * 128);
                else if (lane == 12) prefetch_l2(a.scales2 + unit * UNIT_SCALE_BYTES);
            }
#endif
        }
        if (a.phases == 3) grid_barrier(a.barrier);
        u8* digits = pool;                                                            // [expert in chunk][slot][block]
        const int chunk_blocks = a.chunk_experts * slots * BLOCKS2;
        float* scales = (float*)(digits + chunk_blocks * BLOCK_DIGIT_BYTES);          // weight folded in
        float* sums = scales + ((chunk_blocks + 31) & ~31);                           // [warp][token][32]
        float* mine = sums + warp * slots * 32;
        int resident = -1;  // first expert of the chunk in shared memory
        for (int tile = blockIdx.x; tile < TILES2; tile += gridDim.x) {
            for (int i = lane; i < slots * 32; i += 32) mine[i] = 0.0f;
            for (int base = 0; base < experts; base += a.chunk_experts) {
                const int count_experts = min(a.chunk_experts, experts - base);
                if (resident != base) {
                    __syncthreads();
                    const int jobs = count_experts * slots * BLOCKS2;
                    for (int b = warp; b < jobs; b += WARPS) {
                        int u = base + b / (slots * BLOCKS2), slot = b / BLOCKS2 % slots, block = b % BLOCKS2;
                        if (slot >= g.num_slots[u]) continue;
                        int pair = g.slot_pair[u][slot];
                        const float4* from = (const float4*)(a.hidden + ((long long)pair * BLOCKS2 + block) * 256) + lane * 2;
                        float4 lo = __ldcg(from), hi = __ldcg(from + 1);
                        float v[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
                        write_digits(v, digits + b * BLOCK_DIGIT_BYTES, scales + b);
                        if (lane == 0) scales[b] *= g.pair_weight[pair];
                    }
                    resident = base;
                    __syncthreads();
                }
                const int last = (base + count_experts) * BLOCKS2;
                for (int n = base * BLOCKS2 + warp; n < last; n += WARPS) {
                    Unit unit = loaded == tile * all_units + n ? next : load_unit(a.words2, a.scales2, address(tile, n));
                    int ahead = n + WARPS < last ? n + WARPS : last + warp;  // the next chunk starts at `last`
                    int ahead_tile = tile;
                    if (ahead >= all_units) {
                        ahead = warp;
                        ahead_tile = tile + gridDim.x;
                    }
                    if (ahead < all_units && ahead_tile < TILES2) {
                        next = load_unit(a.words2, a.scales2, address(ahead_tile, ahead));
                        loaded = ahead_tile * all_units + ahead;
                    }
                    int u = n / BLOCKS2, block = n % BLOCKS2, count = g.num_slots[u], at = (u - base) * slots;
                    auto column = [&](int slot) {
                        return digits + ((at + (slot < count ? slot : 0)) * BLOCKS2 + block) * BLOCK_DIGIT_BYTES +
                               ((lane >> 2) & 1) * 64 + q * 16;
                    };
                    auto keep = [&](int slot, const float(&y)[4]) {
                        if (slot >= count) return;
                        float s = scales[(at + slot) * BLOCKS2 + block];
                        float* to = mine + g.slot_pair[u][slot] / TOP_K * 32 + r;
#pragma unroll
                        for (int k = 0; k < 4; k++) to[k * 8] += y[k] * s;
                    };
                    if (count <= 4) {
                        const u8* const ptr[1] = {column(lane >> 3)};
                        float y[1][4];
                        multiply_unit<1>(unit, codebook, ptr, y);
                        keep(q, y[0]);
                    } else {
                        const u8* const ptr[2] = {column(lane >> 3), column(4 + (lane >> 3))};
                        float y[2][4];
                        multiply_unit<2>(unit, codebook, ptr, y);
                        keep(q, y[0]);
                        keep(4 + q, y[1]);
                    }
                    __syncwarp();  // two units of a warp may add to one token from different lanes
                }
            }
            __syncthreads();
            for (int o = threadIdx.x; o < slots * 32; o += WARPS * 32) {
                float y = 0.0f;
                for (int k = 0; k < WARPS; k++) y += sums[k * slots * 32 + o];
                int row = tile * 32 + (o & 31);
                if (row < ROWS2) store_element(a.out, (o >> 5) * a.out_stride + row, a.dtype, y);
            }
            if (tile + (int)gridDim.x < TILES2) __syncthreads();
        }
    }
}
