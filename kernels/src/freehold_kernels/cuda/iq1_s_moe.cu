// Routed experts with IQ1_S weights, few tokens: gate and up → activation → down → weighted sum, in one launch.
//
// One block per SM. Each block groups the (token, expert) pairs by expert, turns the tokens into integer digits, and keeps
// the codebook in shared memory. Phase 1: items are (expert, 16 gate rows + 16 up rows); the warps split K. Grid barrier.
// Phase 2: items are 32 output rows over all experts in use, so the weighted sum needs no atomics and no second pass.
//
// A unit is 32 rows × 256 weights = 1600 bytes. Lane (r, q) holds, for the rows r, r+8 of two 16-row tiles, the codebook
// indices of groups q and 4+q: 32 lookups. A lookup returns eight weights as codes u = 0, 1, 2 in 2-bit fields; times
// 2s+1 they are bytes of two tensor-core fragments (iq1_s_decode.cuh). With q = (2s+1)·(8 ∓ 1),
//   8 · Σ (2s+1)(g + δ) x = Σ 8u(2s+1) x − Σ q · (sum of x over the group),
// and the second sum is one more product whose k-slots hold the group sums. Eight columns of the product carry two digits
// of four tokens.

//
// Shapes are compile-time constants: BLOCKS1 = K1 / 256, WIDTH = expert width I, BLOCKS2 = ⌈I / 256⌉, ROWS2 = output rows
// N2, TOP_K, TOKENS, DTYPE, WARPS, GRID (the number of blocks).

#define TILES1 ((WIDTH + 15) / 16)
#define TILES2 ((ROWS2 + 31) / 32)
#define NUM_PAIRS (TOKENS * TOP_K)
#define MAX_PAIRS 128
#define LIMIT 3200.0f         // ten times it fits two signed digits; a sum of 32 fits four signed bytes and a digit
#define UNIT_WORD_BYTES 1536  // 3 × 16 bytes per lane
#define UNIT_SCALE_BYTES 64   // 32 fp16
#define BLOCK_DIGIT_BYTES 576 // 512 digit bytes and 64 bytes of group sums per 256 activations
#define ROUND_ITEMS (2 * WARPS)  // so that a warp's share of a round touches at most three items
#define BATCH 4               // activation blocks a warp loads before it converts the first

struct Groups {
    int num_experts;
    int expert[MAX_PAIRS];             // distinct expert
    int num_slots[MAX_PAIRS];          // tokens that chose it
    int start[MAX_PAIRS + 1];          // its first place in pair_at
    u8 slot_pair[MAX_PAIRS][TOKENS];   // pair by expert and slot
    u8 pair_at[MAX_PAIRS];             // pairs in the order of their experts
    float pair_weight[MAX_PAIRS];
    u32 leader_mask[4];
    int id[MAX_PAIRS];
};

// Pairs → distinct experts with their pairs. Ids outside [0, num_local) are skipped. A token that names an expert twice
// gets one slot with the summed weight.
__device__ void group_pairs(Groups& g, int id, float weight, int num_local) {
    const int p = threadIdx.x;
    if (p < MAX_PAIRS) {
        g.id[p] = (p < NUM_PAIRS && id >= 0 && id < num_local) ? id : -1;
        g.pair_weight[p] = weight;
        g.num_slots[p] = 0;
    }
    __syncthreads();
    int slot = 0, leader = p, twin = -1;
    if (p < MAX_PAIRS) {
        const int mine = g.id[p], token = p / TOP_K;
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            int found = -1;  // first pair of token t with this expert
#pragma unroll
            for (int k = TOP_K - 1; k >= 0; k--)
                if (g.id[t * TOP_K + k] == mine) found = t * TOP_K + k;
            if (found >= 0 && found < p) {
                if (leader == p) leader = found;
                if (t == token) twin = found;
                else slot++;
            }
        }
        u32 mask = __ballot_sync(FULL_MASK, mine >= 0 && leader == p);
        if ((p & 31) == 0) g.leader_mask[p >> 5] = mask;
    }
    __syncthreads();
    if (p < MAX_PAIRS && g.id[p] >= 0) {
        int u = __popc(g.leader_mask[leader >> 5] & ((1u << (leader & 31)) - 1));
        for (int k = 0; k < (leader >> 5); k++) u += __popc(g.leader_mask[k]);
        if (twin >= 0) {
            atomicAdd(&g.pair_weight[twin], weight);
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

// The pairs in the order of their experts, by the first warp alone; a barrier must follow before phase 2 reads them.
__device__ void order_pairs(Groups& g) {
    if (threadIdx.x < 32) {
        int lane = threadIdx.x, n[4], sum = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) sum += n[k] = g.num_slots[lane * 4 + k];
        int before = sum;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(FULL_MASK, before, d);
            if (lane >= d) before += other;
        }
        before -= sum;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            g.start[lane * 4 + k] = before;
            for (int slot = 0; slot < n[k]; slot++) g.pair_at[before + slot] = g.slot_pair[lane * 4 + k][slot];
            before += n[k];
        }
        if (lane == 31) g.start[MAX_PAIRS] = before;
    }
}

// One warp writes the digits of 256 activations where the products want them:
// [h][j / 2][digit][q][j % 2][8] for weight group 4h + q and codebook row j of it, then the group sums [digit][q][h][4].
__device__ __forceinline__ void write_digits(const float (&v)[8], u8* block, float* scale) {
    int lane = threadIdx.x & 31, group = lane >> 2, j = lane & 3, h = group >> 2, q = group & 3;
    Integers d = make_integers(v, LIMIT);
    uint2 high, low;  // 8·x_a and 2·x_b − 8·x_a, see iq1_s_decode.cuh
    u32 a[4];
#pragma unroll
    for (int k = 0; k < 4; k++) a[k] = d.n[k] * 8;
    split_digits(a[0], a[1], a[2], a[3], high.x, low.x);
    split_digits(d.n[4] * 2 - a[0], d.n[5] * 2 - a[1], d.n[6] * 2 - a[2], d.n[7] * 2 - a[3], high.y, low.y);
    u8* at = block + (h * 2 + (j >> 1)) * 128 + q * 16 + (j & 1) * 8;
    *(uint2*)at = high;
    *(uint2*)(at + 64) = low;
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
__device__ __forceinline__ void multiply_unit(const Unit& unit, u32 codebook, const u8* const (&digits)[NT],
                                              float (&out)[NT][4]) {
    const u32 w[12] = {unit.w[0].x, unit.w[0].y, unit.w[0].z, unit.w[0].w, unit.w[1].x, unit.w[1].y,
                       unit.w[1].z, unit.w[1].w, unit.w[2].x, unit.w[2].y, unit.w[2].z, unit.w[2].w};
    const int lane = threadIdx.x & 31;
    int c[NT][2][4] = {};
    // Four steps (h, half of the codebook rows) of eight lookups; a step's entries are asked for one step ahead.
    u32 entry[2][8];  // [k][tile][half]
    auto look_up = [&](int step, u32 (&to)[8]) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int L = (((i >> 1 & 1) * 2 + (step >> 1)) * 4 + (step & 1) * 2 + (i >> 2)) * 2 + (i & 1);
            to[i] = *(const u32*)__cvta_shared_to_generic(entry_address(w, L, codebook));
        }
    };
    look_up(0, entry[0]);
    {   // the group sums first: their operands are then out of the way
        u32 sums[2][2][2];  // [tile][half][h]
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums[i >> 2][i & 1][i >> 1 & 1] = group_sum_weight(w[11], i, odd_scale(w[11], i));
#pragma unroll
        for (int n = 0; n < NT; n++) {
            // the digits pointer names (token, digit lane/4 % 2, q); the sums lie 32 bytes per digit, 8 per q
            uint2 s = *(const uint2*)(digits[n] + 512 - ((lane >> 2) & 1) * 32 - (lane & 3) * 8);
#pragma unroll
            for (int t = 0; t < 2; t++)
                mma_u8(c[n][t], sums[t][0][0], sums[t][1][0], sums[t][0][1], sums[t][1][1], s.x, s.y);
        }
    }
#pragma unroll
    for (int step = 0; step < 4; step++) {
        if (step < 3) look_up(step + 1, entry[(step + 1) & 1]);
        uint4 b[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) b[n] = *(const uint4*)(digits[n] + step * 128);
#pragma unroll
        for (int t = 0; t < 2; t++) {
            const u32 odd0 = odd_scale(w[11], (t * 2 + (step >> 1)) * 2), odd1 = odd_scale(w[11], (t * 2 + (step >> 1)) * 2 + 1);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const u32 v0 = entry[step & 1][k * 4 + t * 2], v1 = entry[step & 1][k * 4 + t * 2 + 1];
                u32 a0 = both_fours(v0, odd0), a1 = both_fours(v1, odd1);
                u32 a2 = last_four(v0, odd0), a3 = last_four(v1, odd1);
#pragma unroll
                for (int n = 0; n < NT; n++) mma_u8(c[n][t], a0, a1, a2, a3, k ? b[n].z : b[n].x, k ? b[n].w : b[n].y);
            }
        }
    }
    float d[4] = {half_to_float((u16)unit.d.x), half_to_float((u16)(unit.d.x >> 16)), half_to_float((u16)unit.d.y),
                  half_to_float((u16)(unit.d.y >> 16))};
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int t = 0; t < 2; t++) {
            out[n][2 * t] = d[2 * t] * (float)(c[n][t][0] * 256 + c[n][t][1]);
            out[n][2 * t + 1] = d[2 * t + 1] * (float)(c[n][t][2] * 256 + c[n][t][3]);
        }
}

__device__ __forceinline__ float activate(float gate, float up, int kind, float beta, float linear_beta) {
    float sigmoid = 1.0f / (1.0f + __expf(-gate));
    if (kind == 0) return gate * sigmoid * up;  // SiLU
    if (linear_beta > 0.0f) up = linear_beta * tanhf(up / linear_beta);
    return beta * tanhf(gate / beta) * sigmoid * up;  // SiTU
}

struct MoeArgs {
    const void* x;           // [TOKENS, K1], row stride x_stride elements
    const int* ids;          // [TOKENS, TOP_K]
    const float* weights;    // [TOKENS, TOP_K]
    const u8 *words1, *scales1, *words2, *scales2;
    const u32* codebook;     // [2048]
    float* hidden;           // workspace [pairs, BLOCKS2 · 256]; columns past WIDTH stay zero
    void* out;               // [TOKENS, ROWS2]
    u32* barrier;
    long long x_stride, out_stride;
    int num_local;
    int activation;          // 0 SiLU, 1 SiTU
    float beta, linear_beta;
    int phases;              // 1, 2, or 3 for both
    int chunk_pairs;         // phase 2: pairs whose digits fit in shared memory together
};

// y[nt] += the unit's product with the columns of slots q + 4·nt, times the slot's scale.
template <int NT>
__device__ __forceinline__ void add_unit(const Unit& unit, u32 codebook, const u8* const (&columns)[2],
                                         const float* const (&scales)[2], int block, float (&y)[2][4]) {
    const u8* digits[NT];
#pragma unroll
    for (int n = 0; n < NT; n++) digits[n] = columns[n] + block * BLOCK_DIGIT_BYTES;
    float product[NT][4];
    multiply_unit<NT>(unit, codebook, digits, product);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float s = scales[n][block];
#pragma unroll
        for (int k = 0; k < 4; k++) y[n][k] += product[n][k] * s;
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) iq1_s_moe(const __grid_constant__ MoeArgs a) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ Groups g;
    // The codebook lies at a multiple of its 8192 bytes within the shared window, see entry_address. Aligning the variable
    // would not do: the first 1024 bytes of the window are the system's, and they shift it.
    const u32 codebook = ((u32)__cvta_generic_to_shared(shared) + 8191u) & ~8191u;
    u32* codebook_entries = (u32*)__cvta_shared_to_generic(codebook);
    u8* pool = (u8*)codebook_entries + 8192;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = lane >> 2, q = lane & 3;
    const int column_offset = ((lane >> 2) & 1) * 64 + q * 16;  // the lane's digit and k-slots within a block of digits

    let_next_launch();
    for (int i = threadIdx.x; i < 512; i += WARPS * 32) ((uint4*)codebook_entries)[i] = ((const uint4*)a.codebook)[i];
    wait_for_previous();
    // everything that depends on nothing more is asked for first
    int id = -1;
    float weight = 0.0f;
    if (threadIdx.x < NUM_PAIRS) {
        id = a.ids[threadIdx.x];
        weight = a.weights[threadIdx.x];
    }
    const int x_jobs = (a.phases & 1) ? TOKENS * BLOCKS1 : 0;
    RawEight raw[BATCH];
    auto load_x = [&](int b) { return load_eight(a.x, (b / BLOCKS1) * a.x_stride + b % BLOCKS1 * 256 + lane * 8); };
#pragma unroll
    for (int k = 0; k < BATCH; k++)
        if (warp + k * WARPS < x_jobs) raw[k] = load_x(warp + k * WARPS);

    group_pairs(g, id, weight, a.num_local);
    const int experts = g.num_experts;
    if (a.phases == 2) {
        order_pairs(g);
        __syncthreads();
    }

    if (a.phases & 1) {
        const int items = experts * TILES1;
        const int mine = (items + GRID - 1 - (int)blockIdx.x) / GRID;
        // unit n of the block: K-block n % BLOCKS1 of its item n / BLOCKS1, which is item blockIdx + … · gridDim of all
        auto address = [&](int n) {
            int item = blockIdx.x + n / BLOCKS1 * GRID;
            return ((long long)g.expert[item / TILES1] * TILES1 + item % TILES1) * BLOCKS1 + n % BLOCKS1;
        };
        int units = min(ROUND_ITEMS, mine) * BLOCKS1;
        int first = share_start(units, warp, WARPS), last = share_start(units, warp + 1, WARPS);
        Unit next;
        if (first < last) next = load_unit(a.words1, a.scales1, address(first));

        if (a.phases & 2) order_pairs(g);  // weights are on their way, there is time

        u8* digits = pool;  // [token][block]
        float* scales = (float*)(digits + TOKENS * BLOCKS1 * BLOCK_DIGIT_BYTES);
        float* partial = scales + ((TOKENS * BLOCKS1 + 31) & ~31);  // [warp][3 items][slot][32]
        for (int base = warp; base < x_jobs; base += WARPS * BATCH) {
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                int b = base + k * WARPS;
                if (b < x_jobs) {
                    float v[8];
                    to_floats(raw[k], v);
                    write_digits(v, digits + b * BLOCK_DIGIT_BYTES, scales + b);
                }
            }
#pragma unroll
            for (int k = 0; k < BATCH; k++)
                if (base + (k + BATCH) * WARPS < x_jobs) raw[k] = load_x(base + (k + BATCH) * WARPS);
        }
        __syncthreads();

        for (int round = 0; round * ROUND_ITEMS < mine; round++) {
            const int round_first = round * ROUND_ITEMS, first_item = first / BLOCKS1;
            const int next_units = max(0, min(ROUND_ITEMS, mine - round_first - ROUND_ITEMS)) * BLOCKS1;
            const int next_first = share_start(next_units, warp, WARPS), next_last = share_start(next_units, warp + 1, WARPS);
            int count = 0;
            const u8* columns[2];
            const float* column_scales[2];
            float y[2][4];
            for (int n = first; n < last; n++) {
                Unit unit = next;
                if (n + 1 < last) next = load_unit(a.words1, a.scales1, address(round_first * BLOCKS1 + n + 1));
                else if (next_first < next_last)
                    next = load_unit(a.words1, a.scales1, address((round_first + ROUND_ITEMS) * BLOCKS1 + next_first));
                const int item = n / BLOCKS1, block = n % BLOCKS1;
                if (n == first || block == 0) {
                    int u = (blockIdx.x + (round_first + item) * GRID) / TILES1;
                    count = g.num_slots[u];
#pragma unroll
                    for (int nt = 0; nt < 2; nt++) {
                        // the lane's column of the product is slot lane / 8; its result is for slot q; spare slots repeat
                        int in = min(4 * nt + (lane >> 3), count - 1), out = min(4 * nt + q, count - 1);
                        columns[nt] = digits + g.slot_pair[u][in] / TOP_K * BLOCKS1 * BLOCK_DIGIT_BYTES + column_offset;
                        column_scales[nt] = scales + g.slot_pair[u][out] / TOP_K * BLOCKS1;
#pragma unroll
                        for (int k = 0; k < 4; k++) y[nt][k] = 0.0f;
                    }
                }
                if (TOKENS <= 4 || count <= 4) add_unit<1>(unit, codebook, columns, column_scales, block, y);
                else add_unit<2>(unit, codebook, columns, column_scales, block, y);
                if (n + 1 == last || block == BLOCKS1 - 1) {
                    float* to = partial + (warp * 3 + item - first_item) * TOKENS * 32 + r;
#pragma unroll
                    for (int nt = 0; nt < (TOKENS > 4 ? 2 : 1); nt++)
                        if (4 * nt + q < count) {
#pragma unroll
                            for (int k = 0; k < 4; k++) to[(4 * nt + q) * 32 + k * 8] = y[nt][k];
                        }
                }
            }
            __syncthreads();
            for (int o = threadIdx.x; o < units / BLOCKS1 * TOKENS * 16; o += WARPS * 32) {
                int row = o & 15, slot = (o >> 4) % TOKENS, local = (o >> 4) / TOKENS;
                int item = blockIdx.x + (round_first + local) * GRID, u = item / TILES1;
                if (slot >= g.num_slots[u]) continue;
                float gate = 0.0f, up = 0.0f;
                int to = share_owner(units, local * BLOCKS1 + BLOCKS1 - 1, WARPS);
                for (int w = share_owner(units, local * BLOCKS1, WARPS); w <= to; w++) {
                    int share = share_start(units, w, WARPS);
                    if (share == share_start(units, w + 1, WARPS)) continue;
                    const float* from = partial + ((w * 3 + local - share / BLOCKS1) * TOKENS + slot) * 32 + row;
                    gate += from[0];
                    up += from[16];
                }
                int at = item % TILES1 * 16 + row;
                if (at < WIDTH)
                    a.hidden[g.slot_pair[u][slot] * (BLOCKS2 * 256) + at] =
                        activate(gate, up, a.activation, a.beta, a.linear_beta);
            }
            units = next_units;
            first = next_first;
            last = next_last;
            if (next_units) __syncthreads();
        }
    }

    if (a.phases & 2) {
        auto address = [&](int tile, int n) {  // unit n of a tile: (expert n / BLOCKS2, block n % BLOCKS2)
            return ((long long)g.expert[n / BLOCKS2] * TILES2 + tile) * BLOCKS2 + n % BLOCKS2;
        };
        const int all_units = experts * BLOCKS2;
        // a warp's share of a chunk of experts; most often there is one chunk
        int chunk_first = 0, chunk_last = experts;
        int first = share_start(all_units, warp, WARPS), last = share_start(all_units, warp + 1, WARPS);
        Unit next;
        int loaded = -1;  // which (tile, unit) `next` holds
        // weights do not depend on phase 1: the first are on their way, the rest go to L2, while the blocks meet
        if ((int)blockIdx.x < TILES2 && first < last) {
            next = load_unit(a.words2, a.scales2, address(blockIdx.x, first));
            loaded = blockIdx.x * all_units + first;
#ifndef NO_L2_PREFETCH
            for (int n = first + 1; n < last; n++) {
                long long unit = address(blockIdx.x, n);
                if (lane < 12) prefetch_l2(a.words2 + unit * UNIT_WORD_BYTES + lane * 128);
                else if (lane == 12) prefetch_l2(a.scales2 + unit * UNIT_SCALE_BYTES);
            }
#endif
        }
        if (a.phases == 3) grid_barrier(a.barrier);
        u8* digits = pool;                                                    // [pair in chunk][block]
        float* scales = (float*)(digits + a.chunk_pairs * BLOCKS2 * BLOCK_DIGIT_BYTES);  // weight folded in
        float* sums = scales + ((a.chunk_pairs * BLOCKS2 + 31) & ~31);        // [warp][token][32]
        float* mine = sums + warp * TOKENS * 32;
        int resident = -1;  // first expert of the chunk in shared memory
        for (int tile = blockIdx.x; tile < TILES2; tile += GRID) {
            for (int i = lane; i < TOKENS * 32; i += 32) mine[i] = 0.0f;
            chunk_first = 0;
            while (chunk_first < experts) {
                chunk_last = experts;
                if (g.start[experts] - g.start[chunk_first] > a.chunk_pairs) {
                    chunk_last = chunk_first + 1;
                    while (g.start[chunk_last + 1] - g.start[chunk_first] <= a.chunk_pairs) chunk_last++;
                }
                const int pairs_first = g.start[chunk_first];
                if (resident != chunk_first) {
                    __syncthreads();
                    const int jobs = (g.start[chunk_last] - pairs_first) * BLOCKS2;
                    float4 part[BATCH][2];
                    auto load_hidden = [&](int b, float4 (&to)[2]) {
                        if (b >= jobs) return;
                        int pair = g.pair_at[pairs_first + b / BLOCKS2];
                        const float4* from = (const float4*)(a.hidden + (pair * BLOCKS2 + b % BLOCKS2) * 256) + lane * 2;
                        to[0] = __ldcg(from);
                        to[1] = __ldcg(from + 1);
                    };
#pragma unroll
                    for (int k = 0; k < BATCH; k++) load_hidden(warp + k * WARPS, part[k]);
                    for (int base = warp; base < jobs; base += WARPS * BATCH) {
#pragma unroll
                        for (int k = 0; k < BATCH; k++) {
                            int b = base + k * WARPS;
                            if (b >= jobs) break;
                            float v[8] = {part[k][0].x, part[k][0].y, part[k][0].z, part[k][0].w,
                                          part[k][1].x, part[k][1].y, part[k][1].z, part[k][1].w};
                            load_hidden(b + BATCH * WARPS, part[k]);
                            write_digits(v, digits + b * BLOCK_DIGIT_BYTES, scales + b);
                            if (lane == 0) scales[b] *= g.pair_weight[g.pair_at[pairs_first + b / BLOCKS2]];
                        }
                    }
                    resident = chunk_first;
                    __syncthreads();
                }
                const int chunk_units = (chunk_last - chunk_first) * BLOCKS2;
                first = chunk_first * BLOCKS2 + share_start(chunk_units, warp, WARPS);
                last = chunk_first * BLOCKS2 + share_start(chunk_units, warp + 1, WARPS);
                int count = 0, at = 0;
                const u8* columns[2];
                const float* column_scales[2];
                float y[2][4];
                for (int n = first; n < last; n++) {
                    Unit unit = loaded == tile * all_units + n ? next : load_unit(a.words2, a.scales2, address(tile, n));
                    int ahead = n + 1 < last ? n + 1 : first, ahead_tile = n + 1 < last ? tile : tile + GRID;
                    if (ahead_tile < TILES2) {
                        next = load_unit(a.words2, a.scales2, address(ahead_tile, ahead));
                        loaded = ahead_tile * all_units + ahead;
                    }
                    const int u = n / BLOCKS2, block = n % BLOCKS2;
                    if (n == first || block == 0) {
                        count = g.num_slots[u];
                        at = g.start[u];
#pragma unroll
                        for (int nt = 0; nt < 2; nt++) {
                            int in = at - pairs_first + min(4 * nt + (lane >> 3), count - 1);
                            int out = at - pairs_first + min(4 * nt + q, count - 1);
                            columns[nt] = digits + in * BLOCKS2 * BLOCK_DIGIT_BYTES + column_offset;
                            column_scales[nt] = scales + out * BLOCKS2;
#pragma unroll
                            for (int k = 0; k < 4; k++) y[nt][k] = 0.0f;
                        }
                    }
                    if (TOKENS <= 4 || count <= 4) add_unit<1>(unit, codebook, columns, column_scales, block, y);
                    else add_unit<2>(unit, codebook, columns, column_scales, block, y);
                    if (n + 1 == last || block == BLOCKS2 - 1) {
#pragma unroll
                        for (int nt = 0; nt < (TOKENS > 4 ? 2 : 1); nt++)
                            if (4 * nt + q < count) {
                                float* to = mine + g.pair_at[at + 4 * nt + q] / TOP_K * 32 + r;
#pragma unroll
                                for (int k = 0; k < 4; k++) to[k * 8] += y[nt][k];
                            }
                        __syncwarp();  // the next expert may add to the same token from other lanes
                    }
                }
                chunk_first = chunk_last;
            }
            __syncthreads();
            for (int o = threadIdx.x; o < TOKENS * 32; o += WARPS * 32) {
                float y = 0.0f;
#pragma unroll
                for (int k = 0; k < WARPS; k++) y += sums[k * TOKENS * 32 + o];
                int row = tile * 32 + (o & 31);
                if (row < ROWS2) store_element(a.out, (o >> 5) * a.out_stride + row, y);
            }
            if (tile + GRID < TILES2) __syncthreads();
        }
    }
}
