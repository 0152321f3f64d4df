#include "kernels/attention_sm90.h"

namespace flatshard::cuda {

bool has_sm90() { return false; }
bool runs_on_sm90(const AttentionForward&) { return false; }
bool runs_on_sm90(const AttentionBackward&) { return false; }
void attention_forward_sm90(Stream&, const AttentionForward&) { fail("this build has no kernels for sm_90"); }
void attention_backward_sm90(Stream&, const AttentionBackward&, const Tensor&) {
  fail("this build has no kernels for sm_90");
}
void attention_one_pass_sm90(Stream&, const AttentionBackward&, const Tensor&, const OnePassScratch&) {
  fail("this build has no kernels for sm_90");
}

}  // namespace flatshard::cuda
