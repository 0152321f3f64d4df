// Products of one matrix with one (gemm.h) by the kernel in gemm_sm90.cuh.

#include <algorithm>

#include "kernels/gemm_sm90.cuh"
#include "kernels/gemm_sm90.h"

namespace flatshard::cuda {
namespace {

template <class T, bool kTransposeA, bool kTransposeB, class End>
void launch(Stream& stream, const Gemm& g, const End& end) {
  const GemmStrides strides = strides_of(g);
  const int64_t M = g.c.shape[0], K = g.a.shape[kTransposeA ? 0 : 1];
  launch_product<T>(
      stream, Operands<kTransposeA, kTransposeB>{g.a, g.b, strides.a, strides.b},
      DenseJobs{.grid = {tiles_of(M, ProductTiles::kRows), tiles_of(end.columns, kTileColumns<End>)},
                .rows = static_cast<int>(M),
                .steps = tiles_of(K, ProductTiles::kDepth)},
      end);
}

template <class T>
const T* bias_of(const Gemm& g) {
  return g.bias.empty() ? nullptr : g.bias.as<T>();
}

template <class T, class C>
void launch_plain(Stream& stream, const Gemm& g) {
  const Tensor& addend = addend_of(g);
  const PlainEnd<T, C> end{.c = g.c.as<C>(),
                           .addend = addend.empty() ? nullptr : addend.as<C>(),
                           .bias = bias_of<T>(g),
                           .stride = strides_of(g).c,
                           .columns = static_cast<int>(g.c.shape[1]),
                           .alpha = g.alpha};
  if (g.transpose_a)
    return g.transpose_b ? launch<T, true, true>(stream, g, end) : launch<T, true, false>(stream, g, end);
  g.transpose_b ? launch<T, false, true>(stream, g, end) : launch<T, false, false>(stream, g, end);
}

template <class T>
void launch_gated(Stream& stream, const Gemm& g) {
  const auto& gated = std::get<SwigluForward>(g.end);
  visit_gate(gated.function, [&]<class Of>() {
    launch<T, false, true>(stream, g, gated_end<T, Of>(gated, g.c, bias_of<T>(g)));
  });
}

template <class T>
void launch_gradient(Stream& stream, const Gemm& g) {
  const auto& gradient = std::get<SwigluBackward>(g.end);
  visit_gate(gradient.function,
             [&]<class Of>() { launch<T, false, false>(stream, g, gradient_end<T, Of>(gradient)); });
}

template <class T>
void launch_rotated(Stream& stream, const Gemm& g) {
  const auto& rotation = std::get<RopeForward>(g.end);
  const int64_t stride = strides_of(g).c;
  if (rotation.y.shape[2] == 64)
    return launch<T, false, true>(stream, g, rotated_end<T, 32>(rotation, g.c, stride, bias_of<T>(g)));
  launch<T, false, true>(stream, g, rotated_end<T, 64>(rotation, g.c, stride, bias_of<T>(g)));
}

}  // namespace

bool has_gemm_sm90() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9;
}

void gemm_sm90(Stream& stream, const Gemm& g) {
  const auto with = [&]<class T>() {
    if (std::holds_alternative<SwigluForward>(g.end)) return launch_gated<T>(stream, g);
    if (std::holds_alternative<SwigluBackward>(g.end)) return launch_gradient<T>(stream, g);
    if (std::holds_alternative<RopeForward>(g.end)) return launch_rotated<T>(stream, g);
    g.c.dtype == DType::f32 ? launch_plain<T, float>(stream, g) : launch_plain<T, T>(stream, g);
  };
  g.a.dtype == DType::bf16 ? with.template operator()<bf16>() : with.template operator()<f16>();
}

}  // namespace flatshard::cuda
