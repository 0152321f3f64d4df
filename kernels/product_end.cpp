#include "kernels/product_end.h"

namespace flatshard {
namespace {

struct Run {
  Stream& stream;

  void operator()(std::monostate) const {}
  void operator()(const SwigluForward& a) const { swiglu_forward(stream, a); }
  void operator()(const SwigluBackward& a) const { swiglu_backward(stream, a); }
  void operator()(const GeluForward& a) const { gelu_forward(stream, a); }
  void operator()(const GeluBackward& a) const { gelu_backward(stream, a); }
  void operator()(const RopeForward& a) const { rope_forward(stream, a); }
  void operator()(const ClampedGluForward& a) const { clamped_glu_forward(stream, a); }
  void operator()(const ClampedGluBackward& a) const { clamped_glu_backward(stream, a); }
};

}  // namespace

void run(Stream& stream, const ProductEnd& end) { std::visit(Run{stream}, end); }

double more_bytes(const ProductEnd& end, double bytes_of_c) {
  if (const auto* const gated = std::get_if<SwigluForward>(&end))
    return static_cast<double>(gated->y.bytes());
  // gate and up are read and their gradients written; the gradient of y is not written.
  if (std::holds_alternative<SwigluBackward>(end)) return 3 * bytes_of_c;
  return 0;
}

}  // namespace flatshard
