#pragma once
// Wrappers of the warpgroup instructions of sm_90a, one function each, for kernels in files that are compiled
// for sm_90a alone. A warpgroup is four warps, the first of which has a number that is a multiple of four;
// all its threads make each call.

#include <cstdint>

#include "kernels/sums.cuh"

namespace flatshard::cuda {

inline constexpr int kGroupWarps = 4, kGroup = kGroupWarps * kWarp, kGroupRows = 64;

// Blocks of kConsumers warpgroups that compute, 64 rows of the block's tile each, and after them one whose
// first thread starts tensor copies. They share the registers of a multiprocessor.
template <int kConsumers>
struct Groups {
  static constexpr int kThreads = (kConsumers + 1) * kGroup, kRows = kConsumers * kGroupRows;
  static constexpr int kOfCopier = kConsumers == 2 ? 40 : 32, kOfConsumer = kConsumers == 2 ? 232 : 160;
  static_assert(kOfCopier * kGroup + kOfConsumer * kConsumers * kGroup <= 65536);

  static __device__ int group() { return static_cast<int>(threadIdx.x) / kGroup; }
  static __device__ bool copies() { return group() == kConsumers; }
};

// Keeps the compiler, which does not know that products are still running, from moving accesses to these
// registers past this point.
template <int kOperands>
__device__ void pin(uint32_t (&operands)[kOperands][4]) {
#pragma unroll
  for (int i = 0; i < kOperands; ++i)
#pragma unroll
    for (int k = 0; k < 4; ++k) asm volatile("" : "+r"(operands[i][k])::"memory");
}
template <int kColumns>
__device__ void pin(Sums<1, kColumns>& sums) {
  sums.for_each([&](const auto& p) { asm volatile("" : "+f"(sums[p])::"memory"); });
}
// Orders the threads' accesses to registers, including these sums and left operands, before the products that
// follow.
template <class... Registers>
__device__ void fence_products(Registers&... accessed) {
  (pin(accessed), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Groups the products that were issued since the last commit.
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the latest kGroups groups of products are in flight, none of which uses these sums and
// left operands. Until then, nothing may access these registers, or write the shared memory that products
// read.
template <int kGroups, class... Registers>
__device__ void wait_for_products(Registers&... done) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  (pin(done), ...);
}

// Makes this thread's writes to shared memory visible to products and tensor copies.
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Stores four 8 x 8 matrices of 16-bit elements, transposed: lane l passes the address of what was column
// l % 8 of matrix l / 8.
__device__ inline void store_pieces_transposed(uint32_t row, const uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

// Sets the number of registers of each thread, below or above the number that the kernel started with.
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A barrier of `threads` threads, numbered from 1 to 15: sync waits, arrive does not.
__device__ inline void sync_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ inline void arrive_at_barrier(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

inline constexpr int kTileAlignment = 1024;  // alignment of a PanelTile in shared memory

// The first tile in a block's shared memory.
__device__ inline uint32_t first_tile(const void* memory) {
  return (shared_address(memory) + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
}

// Rows of D elements of 16 bits in shared memory, as tensor copies write them and products read them: panels
// of kPanel columns, each with all rows, whose chunks of 16 bytes are swizzled by the row.
template <int D, int kRows>
struct PanelTile {
  static constexpr int kPanel = D % 64 == 0 ? 64 : 32, kPanels = D / kPanel, kRowBytes = kPanel * 2,
                       kPatternBytes = 8 * kRowBytes;
  static constexpr int kPanelBytes = kRows * kRowBytes, kBytes = kPanels * kPanelBytes;
  static_assert(D % kPanel == 0 && kRows % 8 == 0);

  uint32_t begin;  // address in shared memory; a multiple of 1024

  __device__ uint32_t panel(int p) const { return begin + p * kPanelBytes; }
  __device__ uint32_t at(int row, int chunk) const {
    constexpr int kChunks = kPanel / 8;
    const int turn = kChunks == 8 ? row % 8 : row / 2 % 4;
    return panel(chunk / kChunks) + row * kRowBytes + (chunk % kChunks ^ turn) * 16;
  }
  // The descriptor of an operand that is summed along 16 columns from `column` on; its rows begin at `row`, a
  // multiple of 8.
  __device__ uint64_t along(int row, int column) const {
    return descriptor(panel(column / kPanel) + row * kRowBytes + column % kPanel * 2, 0);
  }
  // The descriptor of a right operand that is summed down 16 rows from `row` on; its columns begin at
  // `column`, the first of a panel.
  __device__ uint64_t down(int row, int column = 0) const {
    return descriptor(panel(column / kPanel) + row * kRowBytes, kPanels > 1 ? kPanelBytes : 0);
  }

 private:
  static __device__ uint64_t descriptor(uint32_t place, uint32_t leading) {
    constexpr uint32_t kSwizzle = kPanel == 64 ? 1 : 2;  // swizzle of 128 or of 64 bytes
    const uint32_t low = leading >> 4 << 16 | place >> 4, high = kSwizzle << 30 | kPatternBytes >> 4;
    return uint64_t{high} << 32 | low;
  }
};

// The name of a type in PTX.
template <class T>
struct NameOf;
template <>
struct NameOf<bf16> {
  static constexpr char kPtx[] = "bf16";
};
template <>
struct NameOf<f16> {
  static constexpr char kPtx[] = "f16";
};

// The products below have 64 rows. Each thread has the sums of its warp's 16 rows in the layout of
// multiply_add (tensor_core.cuh), 8 columns after another: Sums<1, N>. With !adds they begin at zero. An `a`
// in registers has the layout of multiply_add's operand. Products are asynchronous.

// sums (64, 64) += a (64, 16) b, with a from PanelTile::along, and b (64, 16)^T from PanelTile::along, or
// (16, 64) from PanelTile::down with kDown.
template <class T, bool kDown = false>
__device__ inline void multiply(float (&d)[32], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.%36.%36 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, %32, %33, adds, 1, 1, 0, %35; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(kDown), "C"(NameOf<T>::kPtx));
}
// sums (64, 128) += a (64, 16) b (128, 16)^T, both from PanelTile::along.
template <class T>
__device__ inline void multiply(float (&d)[64], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.%67.%67 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, %64, %65, adds, 1, 1, 0, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "C"(NameOf<T>::kPtx));
}

// sums (64, 256) += a b, for 16 columns of a and rows of b: a is (64, 16) from PanelTile::along, or (16,
// 64)^T from PanelTile::down with kDownA; b is (256, 16)^T from PanelTile::along, or (16, 256) from
// PanelTile::down with kDownB.
template <class T, bool kDownA, bool kDownB>
__device__ inline void multiply(float (&d)[128], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.%133.%133 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
      "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "
      "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, "
      "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "
      "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, adds, 1, 1, "
      "%131, %132; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),
        "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]),
        "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]),
        "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]),
        "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]),
        "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]),
        "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]),
        "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]),
        "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(kDownA), "n"(kDownB), "C"(NameOf<T>::kPtx));
}

// sums (64, N) += a (64, 16) b, where b is (N, 16)^T from PanelTile::along, or (16, N) from PanelTile::down
// with kDown.
template <class T, bool kDown>
__device__ inline void multiply(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.%39.%39 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, adds, 1, 1, %38; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)), "n"(kDown),
        "C"(NameOf<T>::kPtx));
}
template <class T, bool kDown>
__device__ inline void multiply(float (&d)[48], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.%55.%55 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47}, {%48, %49, %50, %51}, %52, adds, 1, 1, %54; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)), "n"(kDown),
        "C"(NameOf<T>::kPtx));
}
template <class T, bool kDown>
__device__ inline void multiply(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.%71.%71 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, {%64, %65, %66, %67}, %68, adds, 1, 1, %70; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)), "n"(kDown),
        "C"(NameOf<T>::kPtx));
}

}  // namespace flatshard::cuda
