// Shared by all kernels: number conversions, the int8 tensor-core product, activation digits, the grid barrier.
// Compiled by NVRTC without any header.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

#define FULL_MASK 0xffffffffu

// activation and output element types, as numbered in launch.py
#define DTYPE_F32 0
#define DTYPE_BF16 1
#define DTYPE_F16 2

__device__ __forceinline__ float half_to_float(u16 bits) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
}

__device__ __forceinline__ float load_element(const void* base, long long i, int dtype) {
    if (dtype == DTYPE_F32) return ((const float*)base)[i];
    u16 bits = ((const u16*)base)[i];
    return dtype == DTYPE_BF16 ? __uint_as_float((u32)bits << 16) : half_to_float(bits);
}

__device__ __forceinline__ void store_element(void* base, long long i, int dtype, float value) {
    if (dtype == DTYPE_F32) {
        ((float*)base)[i] = value;
        return;
    }
    u16 bits;
    if (dtype == DTYPE_BF16) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    else asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    ((u16*)base)[i] = bits;
}

// Eight neighbouring elements in one or two 16-byte loads (the row start is 16-byte aligned: see launch.py).
__device__ __forceinline__ void load_eight(const void* base, long long i, int dtype, float (&v)[8]) {
    if (dtype == DTYPE_F32) {
        float4 a = ((const float4*)((const float*)base + i))[0], b = ((const float4*)((const float*)base + i))[1];
        v[0] = a.x; v[1] = a.y; v[2] = a.z; v[3] = a.w; v[4] = b.x; v[5] = b.y; v[6] = b.z; v[7] = b.w;
        return;
    }
    uint4 w = *(const uint4*)((const u16*)base + i);
    u32 p[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (dtype == DTYPE_BF16) {
            v[2 * k] = __uint_as_float(p[k] << 16);
            v[2 * k + 1] = __uint_as_float(p[k] & 0xffff0000u);
        } else {
            v[2 * k] = half_to_float((u16)p[k]);
            v[2 * k + 1] = half_to_float((u16)(p[k] >> 16));
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

// One warp turns 256 activations into integers of two signed base-256 digits: x ≈ scale · (256 · high + low).
// Lane l holds elements 8l … 8l+7. `limit` bounds the integers; all 256 share one scale. The bits of |x| are compared as
// integers, so that a NaN or Inf becomes the maximum and poisons the scale instead of vanishing.
struct Digits {
    u32 high[2], low[2];  // four elements a word
    int sum;              // of the lane's eight integers
    float scale;          // the same in all lanes
};

__device__ __forceinline__ Digits make_digits(const float (&v)[8], float limit) {
    u32 top = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) top = max(top, __float_as_uint(v[k]) & 0x7fffffffu);
    top = __reduce_max_sync(FULL_MASK, top);
    float amax = __uint_as_float(top);
    Digits out;
    bool tiny = amax < 1e-30f;  // 1 / amax would overflow; such a block is zero for any purpose
    out.scale = tiny ? 0.0f : amax / limit;
    float inverse = tiny ? 0.0f : limit / amax;
    out.sum = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 high = 0, low = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int n = __float2int_rn(v[4 * half + k] * inverse);
            int h = (n + 128) >> 8;
            out.sum += n;
            high |= (u32)(h & 255) << (8 * k);
            low |= (u32)((n - 256 * h) & 255) << (8 * k);
        }
        out.high[half] = high;
        out.low[half] = low;
    }
    return out;
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
