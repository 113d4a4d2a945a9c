// Shared by all kernels: number conversions, the int8 tensor-core product, activation digits, the grid barrier.
// Compiled by NVRTC without any header.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

#define FULL_MASK 0xffffffffu

// activation and output element types, as numbered in cuda/element.py
#define DTYPE_F32 0
#define DTYPE_BF16 1
#define DTYPE_F16 2

__device__ __forceinline__ float half_to_float(u16 bits) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
}

// DTYPE, one of the three, is a compile-time constant of every kernel.
#if DTYPE == DTYPE_F32
#define ELEMENT_BYTES 4
#else
#define ELEMENT_BYTES 2
#endif

__device__ __forceinline__ void store_element(void* base, long long i, float value) {
#if DTYPE == DTYPE_F32
    ((float*)base)[i] = value;
#else
    u16 bits;
#if DTYPE == DTYPE_BF16
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#endif
    ((u16*)base)[i] = bits;
#endif
}

// Eight neighbouring elements as loaded: 16-byte loads (a row starts at a multiple of 16 bytes, the launcher checks).
struct RawEight {
    uint4 part[ELEMENT_BYTES / 2];
};

__device__ __forceinline__ RawEight load_eight(const void* base, long long i) {
    RawEight raw;
#pragma unroll
    for (int k = 0; k < ELEMENT_BYTES / 2; k++) raw.part[k] = ((const uint4*)((const u8*)base + i * ELEMENT_BYTES))[k];
    return raw;
}

__device__ __forceinline__ void to_floats(const RawEight& raw, float (&v)[8]) {
#pragma unroll
    for (int k = 0; k < ELEMENT_BYTES / 2; k++) {
        u32 p[4] = {raw.part[k].x, raw.part[k].y, raw.part[k].z, raw.part[k].w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
#if DTYPE == DTYPE_F32
            v[4 * k + w] = __uint_as_float(p[w]);
#elif DTYPE == DTYPE_BF16
            v[2 * w] = __uint_as_float(p[w] << 16);
            v[2 * w + 1] = __uint_as_float(p[w] & 0xffff0000u);
#else
            v[2 * w] = half_to_float((u16)p[w]);
            v[2 * w + 1] = half_to_float((u16)(p[w] >> 16));
#endif
        }
    }
}

// Weights are read once: streaming loads that do not displace what L1 and L2 keep.
__device__ __forceinline__ uint4 load_stream(const void* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ uint2 load_stream_8(const void* p) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

__device__ __forceinline__ void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// D[16×8] += A[16×32] · B[32×8], int32 accumulators. Lane (r = lane / 4, q = lane % 4) holds rows r and r + 8 of A,
// column lane / 4 of B, and columns 2q, 2q + 1 of D.
__device__ __forceinline__ void mma_u8(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_s8(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// One warp turns 256 activations into integers: x ≈ scale · n, |n| ≤ limit, one scale for all. Lane l holds elements
// 8l … 8l+7. A NaN or Inf becomes the maximum (NaN's bits are above all others) and poisons the scale instead of vanishing.
struct Integers {
    u32 n[8];     // only the low 16 bits count: those above belong to the number that did the rounding
    int sum;      // of the lane's eight integers
    float scale;  // the same in all lanes
};

__device__ __forceinline__ Integers make_integers(const float (&v)[8], float limit) {
    float top = fabsf(v[0]);
#pragma unroll
    for (int k = 1; k < 8; k++) asm("max.NaN.f32 %0, %0, %1;" : "+f"(top) : "f"(fabsf(v[k])));
    float amax = __uint_as_float(__reduce_max_sync(FULL_MASK, __float_as_uint(top)));
    Integers out;
    bool tiny = amax < 1e-30f;  // 1 / amax would overflow; such a block is zero for any purpose
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(amax));
    out.scale = tiny ? 0.0f : amax * (1.0f / limit);
    float inverse = tiny ? 0.0f : limit * reciprocal;  // one part in 2^23: far below the rounding to integers
    out.sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        // adding 1.5 · 2^23 leaves the rounded integer in the low bits of the float
        out.n[k] = __float_as_uint(__fmaf_rn(v[k], inverse, 12582912.0f));
        out.sum += (int)(out.n[k] - 0x4b400000u);
    }
    return out;
}

// Programmatic dependent launch. A block says at once that the next kernel may be prepared, and waits for the kernels
// before it where it first touches what they wrote; weights and tables do not depend on them. Without the launch
// attribute both do nothing.
__device__ __forceinline__ void let_next_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// First of the units that part `index` of `parts` takes, and who takes unit n: equal contiguous shares.
// `parts` is a compile-time constant wherever speed matters; total · parts stays below 2^32 (the launcher checks).
__device__ __forceinline__ int share_start(int total, int index, int parts) {
    return (u32)total * (u32)index / (u32)parts;
}

__device__ __forceinline__ int share_owner(int total, int n, int parts) {
    return ((u32)(n + 1) * (u32)parts - 1) / (u32)total;
}

// All blocks of the grid meet here; they are resident together (cooperative launch). The word flips its top bit at each
// meeting and never needs a reset, so a captured graph can be replayed.
__device__ __forceinline__ void grid_barrier(u32* word) {
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
        __threadfence();
        u32 old = atomicAdd(word, add);
        u32 now;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
        } while (((old ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}
