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
};

}  // namespace

void run(Stream& stream, const ProductEnd& end) { std::visit(Run{stream}, end); }

}  // namespace flatshard
