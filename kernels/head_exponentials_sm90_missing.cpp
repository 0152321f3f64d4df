#include "kernels/head_exponentials.h"
#include "runtime/check.h"

namespace flatshard::cuda {

void head_exponentials_sm90(Stream&, const HeadExponentials&) { fail("this build has no kernels for sm_90"); }
void head_exponentials_loss_sm90(Stream&, const HeadExponentialsLoss&) {
  fail("this build has no kernels for sm_90");
}

}  // namespace flatshard::cuda
