#include "tests/comm/settings.h"

#include <algorithm>
#include <set>

#include <climits>

#include "comm/shard_policy.h"
#include "runtime/check.h"
#include "runtime/rng.h"

namespace flatshard::test {
namespace {

bool contains(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

// Trains some blocks, parts of others and one root unit; the rest is frozen.
std::vector<std::string> trained_when_frozen(const std::string& family) {
  if (family == "gpt2") return {"transformer.wte.weight", "*.h.1.*weight"};
  return {"*layers.1.*proj*", "*layers.2.*norm*", "lm_head.weight"};
}

// Units smaller or larger than a layer, and replicated parameters.
void wrap_as(const std::string& subject, ParallelConfig& parallel) {
  if (contains(subject, "halves")) parallel.wrap = WrapPolicy::attention_mlp;
  if (contains(subject, " modules")) {
    parallel.wrap = contains(subject, "large") ? WrapPolicy::size : WrapPolicy::pattern;
    if (contains(subject, "large"))
      parallel.wrap_size = 15000;  // two thirds of a block: its attention, MLP and norms form one unit
    else
      parallel.wrap_patterns = {"*.k_proj", "*.layers.1", "*.mlp"};
  }
  if (contains(subject, "one unit")) parallel.wrap = WrapPolicy::none;
  if (contains(subject, "replicated")) parallel.replicate = {"*norm*", "*embed*", "*layers.2.mlp.up*"};
}

// Adapters with dropout on layers of all kinds, and a module that is trained in full.
LoraConfig adapters_of(const std::string& family) {
  LoraConfig lora{.rank = 3, .dropout = 0.1};
  if (family == "llama") lora.targets = ".*(proj|lm_head)";  // the head too
  lora.rank_pattern = {{family == "gpt2" ? "mlp.c_fc" : "v_proj", 5}};
  if (family == "gpt2")
    lora.layers = {1, 2};
  else
    lora.save_modules = {"layers.1.input_layernorm"};
  return lora;
}

constexpr int64_t kLongLane = 2;      // micro-batches of one sequence
constexpr int64_t kTile = 3;          // tokens, of sequences of kMatrixLength
constexpr size_t kNightlyDepths = 2;  // 1 and 2
constexpr size_t kPlainSubjects =
    7;  // the first subjects: families and dtypes without further options, and adapters

// The pairs of values that the chosen settings cover. An extra dimension represents strategy and order
// together.
class Pairs {
 public:
  int new_in(const Setting& s) const {
    int count = 0;
    each(s, [&](size_t at) { count += seen_[at] ? 0 : 1; });
    return count;
  }
  void take(const Setting& s) {
    each(s, [&](size_t at) { seen_[at] = true; });
  }

 private:
  static constexpr size_t kMost = 64;  // values of a dimension

  template <class Visit>
  static void each(const Setting& s, Visit&& visit) {
    const auto pair = [&](size_t i, size_t a, size_t j, size_t b) {
      visit(((i * (kDimensions + 1) + j) * kMost + a) * kMost + b);
    };
    for (size_t i = 0; i < kDimensions; ++i)
      for (size_t j = 0; j < i; ++j) pair(i, s.value[i], j, s.value[j]);
    const size_t together = s[Dimension::strategy] * 4u + s[Dimension::order];
    for (size_t i = static_cast<size_t>(Dimension::cut); i < kDimensions; ++i)
      pair(kDimensions, together, i, s.value[i]);
  }

  std::vector<bool> seen_ = std::vector<bool>((kDimensions + 1) * (kDimensions + 1) * kMost * kMost);
};

}  // namespace

Config matrix_config(const std::string& family) {
  Config c;
  c.run.seed = 3;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = family, .layers = 3, .hidden = 45, .heads = 3, .ffn = 93, .vocab = kMatrixVocab};
  if (family == "llama") c.model.kv_heads = 1, c.model.head_dim = 16;
  c.data = {
      .train = "matrix.tok", .eval = "matrix.tok", .seq_len = kMatrixLength, .packing = Packing::documents};
  c.train.steps = 1;
  c.train.total_batch_size = kMatrixSequences;
  c.train.lane_size = 1;
  c.train.eval_every = 1;
  c.train.eval_batch_size_per_device = 1;
  c.optimizer.lr = 1e-2;
  c.optimizer.weight_decay = 0.1;
  c.optimizer.grad_clip = 0.5;
  return c;
}

Settings::Settings(int ranks) : ranks_(ranks) {
  const auto values = [&](Dimension d, std::vector<std::string> v) {
    values_[static_cast<size_t>(d)] = std::move(v);
  };
  values(Dimension::subject, {"llama fp32",
                              "llama bf16",
                              "llama fp16",
                              "gpt2 fp32",
                              "gpt2 bf16",
                              "gpt2 fp16",
                              "llama fp32 lora",
                              "llama fp32 frozen",
                              "llama bf16 frozen",
                              "gpt2 fp16 frozen",
                              "llama bf16 rounded",
                              "gpt2 fp32 rounded",
                              "llama fp32 long lanes",
                              "gpt2 bf16 long lanes",
                              "llama fp32 sequential",
                              "llama bf16 native",
                              "llama bf16 halves",
                              "gpt2 fp32 halves frozen",
                              "llama fp32 modules",
                              "gpt2 bf16 large modules",
                              "llama bf16 one unit",
                              "llama fp32 replicated",
                              "llama bf16 lora modules",
                              "gpt2 fp16 lora halves",
                              "llama bf16 nf4 lora",
                              "llama fp32 nf4 double lora modules",
                              "gpt2 fp16 fp4 double lora halves",
                              "llama fp32 tiles",
                              "gpt2 bf16 tiles lora",
                              "llama bf16 nf4 tiles lora",
                              "llama fp32 paged",
                              "llama fp16 adamw8bit modules paged"});
  for (const OptimizerKind& kind : optimizer_kinds().subspan(1))  // the others have the first one
    for (const std::string& subject : {str("gpt2 bf16 ", kind.name), str("gpt2 bf16 ", kind.name, " paged"),
                                       str("llama fp32 ", kind.name, " lora paged")})
      values_[static_cast<size_t>(Dimension::subject)].push_back(subject);
  std::vector<std::string> strategies{"no_shard", "zero1", "shard_grad_op", "full_shard"};
  for (const int group : std::set<int>{1, 2, ranks / 2})
    if (group > 0 && ranks % group == 0) strategies.push_back(str("hybrid of ", group));
  values(Dimension::strategy, strategies);
  values(Dimension::order, {"in_order", "concurrent", "comm_late", "comm_early"});
  values(Dimension::cut, {"1", "2", "4"});
  values(Dimension::accumulation, {"sharded", "no_sync"});
  values(Dimension::recompute, {"false", "true", "except_attention", "except_attention, offloaded"});
  values(Dimension::keep_root, {"on", "off"});
  values(Dimension::backward_prefetch, {"none", "pre", "post"});
  values(Dimension::forward_prefetch, {"off", "on"});
  values(Dimension::depth, {"1", "2", "5"});  // 5 exceeds the number of blocks
  values(Dimension::offload, {"off", "on"});
  std::vector<std::string> hosts{"one host"};
  for (int of_host = 2; of_host < ranks; of_host *= 2) hosts.push_back(str("hosts of ", of_host));
  values(Dimension::hosts, hosts);
}

std::vector<Setting> Settings::all() const {
  std::set<Setting> found;
  Setting s;
  for (size_t at = 0; at < kDimensions;) {  // enumerates the Cartesian product
    if (possible(s)) found.insert(plain_where_it_does_not_count(s));
    for (at = 0; at < kDimensions && ++s.value[at] == values_[at].size(); ++at) s.value[at] = 0;
  }
  return {found.begin(), found.end()};
}

bool Settings::possible(const Setting& s) const {
  const int64_t lanes = std::stoll(value(s, Dimension::cut));
  if (kMatrixSequences % (lanes * ranks_) != 0) return false;
  const std::string &subject = value(s, Dimension::subject), &strategy = value(s, Dimension::strategy);
  if (value(s, Dimension::offload) == "on" &&
      (value(s, Dimension::accumulation) != "sharded" || contains(subject, "replicated") ||
       !(strategy == "full_shard" || contains(strategy, "hybrid"))))
    return false;
  if (contains(subject, "long") && kMatrixSequences % (kLongLane * ranks_) != 0) return false;
  return lanes == 1 || !(contains(subject, "rounded") || contains(subject, "long"));
}

Setting Settings::plain_where_it_does_not_count(Setting s) const {
  const ShardPolicy& policy = shard_policy(strategy_of(s));
  if (!policy.grads || group_size(s) == 1) s[Dimension::accumulation] = 0;
  if (!policy.params || (group_size(s) == 1 && value(s, Dimension::offload) == "off"))
    for (const Dimension d :
         {Dimension::keep_root, Dimension::backward_prefetch, Dimension::forward_prefetch, Dimension::depth})
      s[d] = 0;
  if (value(s, Dimension::backward_prefetch) == "none" && value(s, Dimension::forward_prefetch) == "off")
    s[Dimension::depth] = 0;
  if (contains(value(s, Dimension::subject), "native")) s[Dimension::hosts] = 0;
  return s;
}

std::vector<Setting> Settings::covering() const {
  const std::vector<Setting> all = this->all();
  std::vector<Setting> shuffled = all, chosen;
  const RandomStream random(1, "covering");
  for (size_t i = shuffled.size(); i > 1; --i)
    std::swap(shuffled[i - 1], shuffled[random.bits(static_cast<int64_t>(i)) % i]);
  Pairs pairs;
  const auto take = [&](const Setting& s) {
    pairs.take(s);
    chosen.push_back(s);
  };
  for (const Setting& s : all)  // the reference of each subject
    if (Setting plain; plain[Dimension::subject] = s[Dimension::subject], s == plain) take(s);
  // Greedy: settings that cover many new pairs come first. A setting never covers more than it once did.
  std::vector<int> most(shuffled.size(), INT_MAX);
  for (const int least : {45, 40, 35, 30, 25, 20, 16, 12, 9, 6, 4, 2, 1})
    for (size_t i = 0; i < shuffled.size(); ++i) {
      if (most[i] < least) continue;
      most[i] = pairs.new_in(shuffled[i]);
      if (most[i] >= least) take(shuffled[i]);
    }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<Setting> Settings::nightly() const {
  const std::vector<Setting> some = covering();
  std::set<Setting> chosen(some.begin(), some.end());
  // The dimensions that are enumerated; the others keep their first value.
  constexpr std::array kCounted{Dimension::subject,   Dimension::strategy,          Dimension::order,
                                Dimension::recompute, Dimension::backward_prefetch, Dimension::depth};
  Setting s;
  s[Dimension::forward_prefetch] = 1;
  for (size_t at = 0; at < kCounted.size();) {
    chosen.insert(plain_where_it_does_not_count(s));
    for (at = 0; at < kCounted.size(); ++at) {
      const size_t values = kCounted[at] == Dimension::subject ? kPlainSubjects
                            : kCounted[at] == Dimension::depth
                                ? kNightlyDepths
                                : values_[static_cast<size_t>(kCounted[at])].size();
      if (++s[kCounted[at]] < values) break;
      s[kCounted[at]] = 0;
    }
  }
  return {chosen.begin(), chosen.end()};
}

Config Settings::config(const Setting& s) const {
  const std::string& subject = value(s, Dimension::subject);
  const std::string family = subject.substr(0, subject.find(' '));
  Config c = matrix_config(family);
  c.precision.compute = *named<Precision>(subject.substr(family.size() + 1, 4));
  if (contains(subject, "rounded")) c.precision.reduce = Precision::bf16;
  if (contains(subject, "frozen")) c.trainable = trained_when_frozen(family);
  if (contains(subject, "lora")) c.lora = adapters_of(family);
  if (contains(subject, "nf4")) c.quant.base = FourBitKind::nf4;
  if (contains(subject, "fp4")) c.quant.base = FourBitKind::fp4;
  c.quant.nested = contains(subject, "double");
  for (const OptimizerKind& kind : optimizer_kinds())
    if (contains(subject + ' ', str(' ', kind.name, ' '))) c.optimizer.kind.row = &kind;
  c.optimizer.kind.paged = contains(subject, "paged");
  if (contains(subject, "sequential")) c.parallel.reduction = Reduction::sequential;
  if (contains(subject, "native")) c.parallel.reduction = Reduction::native;
  if (contains(subject, "long")) c.train.lane_size = kLongLane;
  wrap_as(subject, c.parallel);
  c.parallel.strategy = strategy_of(s);
  if (c.parallel.strategy == Strategy::hybrid) c.parallel.group_size = group_size(s);
  c.train.batch_size_per_device = std::stoi(value(s, Dimension::cut));
  const std::string& recompute = value(s, Dimension::recompute);
  c.train.recompute = *named<Recompute>(recompute.substr(0, recompute.find(',')));
  c.train.offload_activations = contains(recompute, "offloaded");
  if (contains(subject, "tiles")) c.train.tile = kTile;
  c.parallel.accumulation = *named<Accumulation>(value(s, Dimension::accumulation));
  c.parallel.keep_root_gathered = value(s, Dimension::keep_root) == "on";
  c.parallel.backward_prefetch = *named<BackwardPrefetch>(value(s, Dimension::backward_prefetch));
  c.parallel.forward_prefetch = value(s, Dimension::forward_prefetch) == "on";
  c.parallel.depth = std::stoi(value(s, Dimension::depth));
  c.parallel.offload = value(s, Dimension::offload) == "on";
  if (s[Dimension::hosts] > 0) c.parallel.host_ranks = std::stoi(value(s, Dimension::hosts).substr(9));
  return c;
}

StreamOrder Settings::order(const Setting& s) const { return static_cast<StreamOrder>(s[Dimension::order]); }

std::string Settings::name(const Setting& s) const {
  return str(value(s, Dimension::strategy), ", ", value(s, Dimension::order), ", ", value(s, Dimension::cut),
             " lanes at a time, accumulation ", value(s, Dimension::accumulation), ", recompute ",
             value(s, Dimension::recompute), ", keep root ", value(s, Dimension::keep_root),
             ", prefetch backward ", value(s, Dimension::backward_prefetch), " forward ",
             value(s, Dimension::forward_prefetch), " depth ", value(s, Dimension::depth), ", offload ",
             value(s, Dimension::offload), ", ", value(s, Dimension::hosts));
}

std::string Settings::key(const Setting& s) const {
  const std::string& full = value(s, Dimension::subject);
  const std::string subject = full.substr(0, full.find(" paged"));  // which changes no bit
  if (!contains(subject, "sequential") && !contains(subject, "native")) return subject;
  const bool whole = !shard_policy(strategy_of(s)).grads || group_size(s) == 1 ||
                     value(s, Dimension::accumulation) == "no_sync";
  return str(subject, ", ", value(s, Dimension::cut), " lanes, groups of ", group_size(s),
             whole ? ", sums whole" : ", sums sharded",
             value(s, Dimension::offload) == "on" ? ", added on the host" : "");
}

const std::string& Settings::value(const Setting& s, Dimension d) const {
  return values_[static_cast<size_t>(d)][s[d]];
}

Strategy Settings::strategy_of(const Setting& s) const {
  const std::string& name = value(s, Dimension::strategy);
  return *named<Strategy>(name.substr(0, name.find(' ')));
}

int Settings::group_size(const Setting& s) const {
  const Strategy strategy = strategy_of(s);
  const int given = strategy == Strategy::hybrid ? std::stoi(value(s, Dimension::strategy).substr(10)) : 0;
  return groups_of(shard_policy(strategy), ranks_, given).size;
}

}  // namespace flatshard::test
