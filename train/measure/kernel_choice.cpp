#include "train/measure/kernel_choice.h"

#include <algorithm>
#include <filesystem>

#include "comm/agreement.h"
#include "kernels/attention.h"
#include "kernels/bf16_products.h"
#include "kernels/gemm.h"
#include "kernels/tuned_products.h"
#include "runtime/check.h"
#include "runtime/gpu.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

bool multiplies_bf16(const RunSetup& setup) {
  const auto& weights = setup.model.quantized;
  return setup.compute == DType::bf16 || std::any_of(weights.begin(), weights.end(), [](const auto& layer) {
           return layer.second.compute == DType::bf16;
         });
}

// Ranks must agree, since results depend on the way.
std::string agree_on_bf16_products(const RunSetup& setup, World& world) {
  const std::string way = bf16_products_of(setup);
  if (way.empty()) return "";
  agree(world, str("products of bf16 = ", way, '\n'), "the products of bf16",
        "their processors differ, and results would depend on which rank computes them: set "
        "ONEDNN_MAX_CPU_ISA=AVX512_CORE on all hosts, which widens operands everywhere");
  return str("of bf16 ", way);
}

// The one place where a run chooses between the project's kernel and cuBLASLt's.
ProductKernels kernels_of(const RunSetup& setup) {
  return setup.config.run.products == ProductChoice::own ? ProductKernels::own : ProductKernels::cublaslt;
}

}  // namespace

std::string bf16_products_of(const RunSetup& setup) {
  return setup.device.is_cuda() || !multiplies_bf16(setup) ? "" : describe(bf16_products());
}

std::string choose_products(const RunSetup& setup, World& world) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  constexpr const char* kOwn = "by the project's kernel where it supports them, others ";
  if (!setup.device.is_cuda()) return agree_on_bf16_products(setup, world);
  const int spare = static_cast<int>(setup.config.run.spare_multiprocessors);
  const int all = multiprocessors(setup.device);
  check(spare < all, "run.spare_multiprocessors = ", spare, " leaves none of the ", all, " of ", setup.device,
        " to matrix products");
  spare_multiprocessors(setup.device, spare);
  check(product_kernels() == ProductKernels::cublaslt || has_own_products(setup.device),
        "run.products = \"own\" needs a GPU of sm_90 (Hopper) and a build with kernels for it; ",
        setup.device, " has neither or one of them: set it to \"auto\"");
  check(setup.model.experts == 0 || has_own_products(setup.device), "model.experts = ", setup.model.experts,
        ": the products of experts need a GPU of sm_90 (Hopper) and a build with kernels for it; ",
        setup.device, " has neither or one of them: set run.device = \"cpu\"");
  const std::string own = product_kernels() == ProductKernels::own ? kOwn : "";
  const std::string beside = spare > 0 ? str(", for ", all - spare, " of ", all, " multiprocessors") : "";
  const std::string& path = setup.config.run.tuned_products;
  if (path.empty()) {
    use_tuned_products(setup.device, "", path);
    return own + "chosen by the heuristics of cuBLASLt" + beside;
  }
  std::string text;
  succeed_together(world, [&] {
    if (world.rank() != 0) return;
    const std::string before = std::filesystem::exists(path) ? read_whole_file(path, kMostBytes) : "";
    StreamSet streams(setup.device);
    text = tune_products(streams.add("timing"), before, path);
    if (text != before) write_whole_file(path, text);
  });
  text = world.all_gather_texts(text, "timed products").front();
  return str(own, "timed on this GPU, set ", use_tuned_products(setup.device, text, path), " of ", path,
             beside);
}

void choose_kernels(const RunSetup& setup) {
  use_product_kernels(kernels_of(setup));
  switch (setup.config.run.attention) {
    case AttentionChoice::automatic:
      return use_attention_tier(AttentionTier::newest);
    case AttentionChoice::one_pass:
      return use_attention_tier(AttentionTier::one_pass);
    case AttentionChoice::sm_80:
      return use_attention_tier(AttentionTier::sm_80);
  }
}

std::string describe_attention(const RunSetup& setup) {
  if (!setup.device.is_cuda()) return "";
  const AttentionChoice choice = setup.config.run.attention;
  const std::string kernels = describe_attention_tier(setup.compute, setup.model.head_dim);
  check(choice != AttentionChoice::one_pass || kernels.starts_with("sm_90"),
        "run.attention = \"one_pass\" needs a GPU of sm_90 (Hopper) and a build with kernels for it; ",
        setup.device, " runs the kernels for ", kernels, ": set it to \"auto\"");
  return str("kernels for ", kernels, choice == AttentionChoice::one_pass ? ", backward in one pass" : "",
             choice == AttentionChoice::automatic ? "" : ", as run.attention says");
}

}  // namespace flatshard
