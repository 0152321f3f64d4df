// The gradient of losses of whole answers on the GPU. A thread block owns an example: it sums over the
// targets of each answer, every thread computes the same terms from the sums, and the block writes its rows.
// Speed does not matter: an answer takes some kilobytes, far less than the logits of its tokens.

#include "kernels/answer_loss.h"
#include "kernels/answer_terms.h"
#include "kernels/cuda_util.cuh"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256;

struct Columns {
  float* dnll;
  const float* nll;
  const int32_t* targets;
  const int32_t* examples;
  const float *reference, *sampled, *advantage;  // null if the loss has no such column
  AnswerFactors factors;
  int64_t first, end;
};

// An AnswerLoss in fp32.
struct Settings {
  explicit Settings(const AnswerLoss& loss)
      : kind(loss.kind),
        ratio(loss.ratio),
        mean(loss.mean),
        beta(static_cast<float>(loss.beta)),
        label_smoothing(static_cast<float>(loss.label_smoothing)),
        desirable_weight(static_cast<float>(loss.desirable_weight)),
        undesirable_weight(static_cast<float>(loss.undesirable_weight)),
        clip_low(static_cast<float>(loss.clip_low)),
        clip_high(static_cast<float>(loss.clip_high)),
        kl_weight(static_cast<float>(loss.kl_weight)) {}

  LossKind kind;
  RatioOf ratio;
  MeanOver mean;
  float beta, label_smoothing, desirable_weight, undesirable_weight, clip_low, clip_high, kl_weight;
};

struct Sums {
  float logprob, reference, log_ratio, tokens;
};

// The sums over the targets in rows [begin, end), in every thread.
__device__ inline Sums sums_of(const Columns& c, int64_t begin, int64_t end) {
  Sums s{};
  for (int64_t t = begin + threadIdx.x; t < end; t += kThreads) {
    if (c.targets[t] < 0) continue;
    s.logprob -= c.nll[t];
    s.tokens += 1;
    if (c.reference) s.reference += c.reference[t];
    if (c.sampled) s.log_ratio -= c.nll[t] + c.sampled[t];
  }
  return {block_sum<kThreads>(s.logprob), block_sum<kThreads>(s.reference), block_sum<kThreads>(s.log_ratio),
          block_sum<kThreads>(s.tokens)};
}

// Writes value(t) to the rows of targets in [begin, end), and 0 to the others.
template <class Value>
__device__ inline void write_rows(const Columns& c, int64_t begin, int64_t end, Value value) {
  for (int64_t t = begin + threadIdx.x; t < end; t += kThreads)
    c.dnll[t] = c.targets[t] < 0 ? 0.0f : value(t);
}

__global__ void __launch_bounds__(kThreads) pairs_kernel(Columns c, Settings loss) {
  const int32_t* const rows = c.examples + 3 * blockIdx.x;
  const int64_t begin = rows[0], second = rows[1], end = rows[2];
  if (begin < c.first || end > c.end) return;
  const Sums chosen = sums_of(c, begin, second), rejected = sums_of(c, second, end);
  const answers::PairTerm<float> term = answers::of_pair<float>(
      loss.kind, loss.beta, loss.label_smoothing, {chosen.logprob - chosen.reference, chosen.tokens},
      {rejected.logprob - rejected.reference, rejected.tokens});
  const float mean = c.factors.mean, sft = c.factors.sft;
  write_rows(c, begin, second, [&](int64_t) { return -term.chosen * mean + sft; });
  write_rows(c, second, end, [&](int64_t) { return -term.rejected * mean; });
}

__global__ void __launch_bounds__(kThreads) kto_kernel(Columns c, Settings loss) {
  const int32_t* const rows = c.examples + 3 * blockIdx.x;
  const int64_t begin = rows[0], second = rows[1], end = rows[2];
  if (begin < c.first || end > c.end) return;
  const Sums own = sums_of(c, begin, second);
  float of_targets = 0;  // all targets of an answer have the same label
  for (int64_t t = begin + threadIdx.x; t < second; t += kThreads)
    if (c.targets[t] >= 0) of_targets += c.advantage[t];
  const float label = block_sum<kThreads>(of_targets) > 0 ? 1.0f : -1.0f;
  const float weight = label > 0 ? loss.desirable_weight : loss.undesirable_weight;
  const float slope = answers::kto(own.logprob - own.reference, c.factors.baseline, label, loss.beta).slope;
  write_rows(c, begin, second, [&](int64_t) { return -slope * weight * c.factors.mean; });
  write_rows(c, second, end, [&](int64_t) { return 0.0f; });
}

__global__ void __launch_bounds__(kThreads) policy_kernel(Columns c, Settings loss) {
  const int32_t* const rows = c.examples + 3 * blockIdx.x;
  const int64_t begin = rows[0], end = rows[2];
  if (begin < c.first || end > c.end) return;
  const Sums sums = sums_of(c, begin, end);
  const bool whole = loss.ratio == RatioOf::answer;
  const float mean = c.factors.mean / (loss.mean == MeanOver::answers ? sums.tokens : 1.0f);
  const auto slope_of_ratio = [&](int64_t t) {
    const float log_ratio = whole ? sums.log_ratio / sums.tokens : -c.nll[t] - c.sampled[t];
    return answers::clipped_ratio(log_ratio, c.advantage[t], loss.clip_low, loss.clip_high).slope;
  };
  float slopes = 0;  // sum over all tokens of the slope by the answer's ratio
  if (whole) {
    for (int64_t t = begin + threadIdx.x; t < end; t += kThreads)
      if (c.targets[t] >= 0) slopes += slope_of_ratio(t);
    slopes = block_sum<kThreads>(slopes) / sums.tokens;
  }
  const float kl_weight = loss.kl_weight;
  write_rows(c, begin, end, [&](int64_t t) {
    float slope = whole ? slopes : slope_of_ratio(t);
    if (c.reference) slope += kl_weight * answers::divergence(-c.nll[t], c.reference[t]).slope;
    return -slope * mean;
  });
}

}  // namespace

void answer_loss_backward(Stream& stream, const AnswerLossBackward& a) {
  Columns c{.dnll = a.dnll.as<float>(),
            .nll = a.nll.as<float>(),
            .targets = a.targets.as<int32_t>(),
            .examples = a.inputs.examples.as<int32_t>(),
            .reference = nullptr,
            .sampled = nullptr,
            .advantage = nullptr,
            .factors = a.inputs.factors,
            .first = a.first,
            .end = a.end};
  const float* column = a.inputs.values.as<float>();
  for (const AnswerColumn of : columns_of(a.inputs.loss)) {
    (of == AnswerColumn::reference ? c.reference
     : of == AnswerColumn::sampled ? c.sampled
                                   : c.advantage) = column;
    column += a.nll.size();
  }
  const auto blocks = static_cast<unsigned>(a.inputs.examples.shape[0]);
  if (a.inputs.loss.has_pairs())
    pairs_kernel<<<blocks, kThreads, 0, native(stream)>>>(c, Settings(a.inputs.loss));
  else if (a.inputs.loss.kind == LossKind::kto)
    kto_kernel<<<blocks, kThreads, 0, native(stream)>>>(c, Settings(a.inputs.loss));
  else
    policy_kernel<<<blocks, kThreads, 0, native(stream)>>>(c, Settings(a.inputs.loss));
  check_launch(stream, "answer_loss_backward");
}

}  // namespace flatshard::cuda
