#include "train/config/foreign_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <regex>

#include "comm/optimizer_kinds.h"
#include "runtime/check.h"
#include "runtime/problems.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/config/fields.h"
#include "train/config/foreign_keys.h"
#include "train/config/yaml_mapping.h"

namespace flatshard {
namespace {

constexpr int64_t kMostFileBytes = 1 << 20;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != text.npos; }

std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size() && std::isfinite(value);
  return whole && !text.empty() ? std::optional(value) : std::nullopt;
}

std::optional<bool> flag_in(const std::string& text) {
  const std::string word = lower(text);
  for (const char* yes : {"true", "yes", "on"})
    if (word == yes) return true;
  for (const char* no : {"false", "no", "off", "none"})
    if (word == no) return false;
  return {};
}

std::string list_of(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + quoted(item);
  return '[' + text + ']';
}

// The value as TOML for a field of ours; nothing if it does not fit.
struct AsToml {
  const Field& field;
  const std::string& value;
  const std::vector<std::string>& items;

  using Result = std::optional<std::string>;
  Result operator()(const Choice&) const {
    const std::vector<std::string> names = field.names();
    const bool is_name = std::find(names.begin(), names.end(), lower(value)) != names.end();
    return is_name ? Result(quoted(lower(value))) : Result();
  }
  Result operator()(const std::string*) const {
    if (field.spelling != Spelling::text && (number_in(value) || flag_in(value))) return lower(value);
    return items.empty() ? Result(quoted(value)) : Result();
  }
  Result operator()(const int64_t*) const { return whole(); }
  Result operator()(const std::optional<int64_t>*) const { return whole(); }
  Result operator()(const double*) const { return real(); }
  Result operator()(const std::optional<double>*) const { return real(); }
  Result operator()(const bool*) const { return flag(); }
  Result operator()(const std::optional<bool>*) const { return flag(); }
  Result operator()(const std::vector<std::string>*) const { return list_of(many()); }
  Result operator()(const DataFiles*) const { return items.empty() ? quoted(value) : list_of(items); }
  Result operator()(const ModulePatterns*) const { return items.empty() ? quoted(value) : list_of(items); }
  Result operator()(const std::vector<int64_t>*) const {
    std::string text;
    for (const std::string& item : many()) {
      if (!number_in(item)) return {};
      text += (text.empty() ? "" : ", ") + item;
    }
    return '[' + text + ']';
  }
  template <class Other>
  Result operator()(const Other*) const {
    return {};
  }

 private:
  std::vector<std::string> many() const { return items.empty() ? std::vector{value} : items; }
  Result whole() const {
    const std::optional<double> n = number_in(value);
    if (!n || *n != std::floor(*n) || std::abs(*n) > 1e15) return {};
    return str(static_cast<int64_t>(*n));
  }
  Result real() const {
    const std::optional<double> n = number_in(value);
    if (!n) return {};
    std::string text = str(*n);
    return text.find_first_of(".e") == text.npos ? text + ".0" : text;
  }
  Result flag() const {
    const std::optional<bool> on = flag_in(value);
    return on ? Result(*on ? "true" : "false") : Result();
  }
};

// A value of the file under its path, such as "optimizer.lr".
struct Given {
  std::string path, value;
  std::vector<std::string> items{};
  int line = 0;

  std::string name() const { return path.substr(path.rfind('.') + 1); }
  bool is_empty() const { return value.empty() && items.empty(); }
  // The values, in lower case.
  std::vector<std::string> words() const {
    std::vector<std::string> all;
    for (const std::string& word : items.empty() ? std::vector{value} : items) all.push_back(lower(word));
    return all;
  }
  std::string text() const {
    std::string all;
    for (const std::string& item : items) all += (all.empty() ? "" : ", ") + item;
    return printable(items.empty() ? value : '[' + all + ']');
  }
};

// A trainer's default for a setting that its file omits.
struct Default {
  const char *key, *toml;
};
struct Trainer {
  const char* name;
  std::vector<Default> defaults;
  bool nests_scales = false;  // quantizes the scales of 4-bit weights, too
};

const std::vector<Default> kOfTransformers{{"optimizer.betas", "[0.9, 0.999]"},
                                           {"optimizer.no_decay", "[\"norm\", \"bias\"]"},
                                           {"optimizer.grad_clip", "1.0"},
                                           {"data.packing", "\"none\""}};

Trainer with(const char* name, std::vector<Default> own, bool nests_scales = false) {
  own.insert(own.end(), kOfTransformers.begin(), kOfTransformers.end());
  return {name, own, nests_scales};
}

// The defaults of SFTConfig for settings that a file of TRL omits.
const Trainer kTrl = with("TRL", {{"optimizer.lr", "2e-5"},
                                  {"train.epochs", "3.0"},
                                  {"train.batch_size_per_device", "8"},
                                  {"data.seq_len", "1024"},
                                  {"data.train_on", "\"all\""},
                                  {"schedule.kind", "\"linear\""},
                                  {"train.recompute", "true"}}),
              kAxolotl = with("axolotl",
                              {{"schedule.kind", "\"cosine\""},
                               {"data.train_on", "\"assistant\""},
                               {"train.epochs", "1.0"}},
                              true),
              kTorchtune{"torchtune",
                         {{"optimizer.betas", "[0.9, 0.999]"},
                          {"optimizer.no_decay", "[]"},
                          {"optimizer.grad_clip", "0.0"},
                          {"schedule.kind", "\"constant\""},
                          {"data.packing", "\"none\""}},
                         true};

const Trainer& trainer_of(const std::vector<Given>& all) {
  const auto has = [&](const char* name) {
    return std::any_of(all.begin(), all.end(), [&](const Given& g) { return g.name() == name; });
  };
  if (has("_component_")) return kTorchtune;
  return has("base_model") || has("sequence_len") || has("micro_batch_size") ? kAxolotl : kTrl;
}

class Converter {
 public:
  Converter(std::string name, std::vector<Given> given, int ranks)
      : name_(std::move(name)), given_(std::move(given)), trainer_(trainer_of(given_)), ranks_(ranks) {}

  std::string convert() {
    for (const Given& g : given_) translate(g);
    set_precision();
    set_adapters();
    for (const Default& d : trainer_.defaults) add_default(d);
    set_periods();
    set_length();
    set_batch();
    drop_without_effect();
    problems_.raise();
    return account() + toml();
  }

 private:
  void translate(const Given& g) {
    if (g.is_empty()) return leave(g, "is empty");
    if (by_rule(g)) return;
    if (const Field* own = own_field(g)) return copy(g, *own);
    const ForeignKey* const row = foreign_key(g.path);
    if (row == nullptr) return refuse(g, "is not known, and may change what is trained");
    if (*row->key == 0 || row->same != nullptr) {
      const std::vector<std::string> words = g.words();
      const bool is_same = std::all_of(words.begin(), words.end(),
                                       [&](const std::string& word) { return row->means_same(word); });
      if (is_same) return leave(g, *row->key == 0 ? row->value : "is so without being set");
      if (*row->key == 0) return refuse(g, str("has no counterpart: ", row->value));
    }
    const Field& field = *field_of(row->key);
    if (*row->value == 0) return copy(g, field);
    if (const std::optional<std::string> clause = clause_for(g, row->value)) return set(g, row->key, *clause);
    const std::string_view meaning = row->value;
    const bool is_path = (std::holds_alternative<std::string*>(field.slot) ||
                          std::holds_alternative<DataFiles*>(field.slot)) &&
                         (meaning.starts_with("a folder") || meaning.starts_with("the folder") ||
                          meaning.starts_with("a .") || meaning.starts_with("a file"));
    if (is_path && !flag_in(g.value) && !number_in(g.value)) return copy(g, field, row->value);
    leave_or_refuse(g, field, str("is ", row->key, " here: ", row->value));
  }

  // Handles keys whose meaning depends on more than their value. Returns whether `g` is one of them.
  bool by_rule(const Given& g) {
    const std::string name = lower(g.name()), path = lower(g.path), value = g.words().front();
    const std::optional<bool> on = flag_in(value);
    if (name == "gradient_accumulation_steps" || name == "grad_accum_steps") return set_accumulation(g);
    if (name == "num_processes" || name == "nproc_per_node" || name == "world_size") return check_ranks(g);
    if ((name == "max_steps" || name == "max_steps_per_epoch") && number_in(g.value).value_or(0) <= 0)
      return left(g, "no limit on steps");
    if ((name == "eval_steps" && has_strategy("eval_strategy", "evaluation_strategy")) ||
        (name == "save_steps" && has_strategy("save_strategy", "save_strategy")))
      return left(g, "the strategy is another");
    if (name == "eval_strategy" || name == "evaluation_strategy" || name == "save_strategy")
      return by_strategy(g, value, name == "save_strategy");
    if (contains(path, "optim") && (name == "optim" || name == "optimizer" || name == "_component_"))
      return set_optimizer(g, value);
    if (path == "loss._component_") return set_loss(g, value);
    if (path == "model._component_" && contains(value, "qlora")) return set_four_bit(g, true);
    if (path == "model._component_" && contains(value, "dora"))
      return refuse(g, "adapters are LoRA; DoRA does not exist"), true;
    if (contains(path, "lr_scheduler") && (name.starts_with("lr_scheduler") || name == "_component_"))
      return set_schedule(g, value);
    if (name == "warmup_steps" && number_in(value).value_or(1) < 1 && number_in(value) > 0.0)
      return copy(g, *field_of("schedule.warmup_ratio")), true;
    if (name == "bf16" || name == "bfloat16" || name == "fp16" || name == "float16")
      return set_compute(g, contains(name, "bf") ? "\"bf16\"" : "\"fp16\"", value);
    if (name == "evals_per_epoch" || name == "saves_per_epoch") return by_epoch(g, name == "saves_per_epoch");
    if (name == "path" && value.ends_with(".model"))
      return left(g, "the tokenizer is that of model.init_from");
    if (name == "dtype" || name == "torch_dtype") return set_dtype(g, value);
    if (name == "bnb_4bit_compute_dtype") {
      const char* const dtype = dtype_in(value);
      return dtype != nullptr && (set(g, "quant.compute", quoted(dtype)), true);
    }
    if (name == "adam_beta1" || name == "adam_beta2") {
      if (!number_in(g.value)) return refuse(g, "must be a number"), true;
      betas_[name.back() - '1'] = *number_in(g.value);
      set_again("optimizer.betas", str('[', betas_[0], ", ", betas_[1], ']'));
      mapped_.push_back(line_of(g, "optimizer.betas"));
      return true;
    }
    if (name == "adapter" || name == "use_peft" || name == "use_peft_lora") return set_adapter(g, value);
    if (name == "load_in_4bit" || name == "use_4bit_quantization" || name == "quantize_base")
      return on && set_four_bit(g, *on);
    if (name == "model_type" && contains(value, "for")) return left(g, "the folder model.init_from decides");
    if (name == "chat_template" && value == "tokenizer_default")
      return left(g, "the chat template is that of the tokenizer's folder");
    if ((name == "add_special_tokens" || name == "append_concat_token") && has("chat_template_format"))
      return left(g, "special tokens of a conversation are those of its chat template");
    if (name == "lora_target_modules" && contains(g.value, ",")) return split_targets(g);
    if (name == "lora_attn_modules" || name == "apply_lora_to_mlp" || name == "apply_lora_to_output")
      return add_targets(g, name, on.value_or(false));
    if (name == "lora_target_modules" && !g.items.empty() && set_.contains("lora.targets"))
      return left(g, "lora.targets is already set");
    if (name == "datasets" || name == "test_datasets") return false;
    if (name == "val_set_size" && number_in(g.value).value_or(1) == 0) return left(g, "no evaluation");
    if (name == "packing_strategy" || name == "excess_length_strategy")
      if (const auto packing = set_.find("data.packing");
          packing == set_.end() || packing->second == "\"none\"")
        return left(g, "sequences are not packed");
    return false;
  }

  bool has(const char* name) const {
    return std::any_of(given_.begin(), given_.end(),
                       [&](const Given& g) { return lower(g.name()) == name && !g.is_empty(); });
  }

  // Whether the key, which has two names, asks for something else than events every so many steps.
  bool has_strategy(const char* name, const char* other) const {
    return std::any_of(given_.begin(), given_.end(), [&](const Given& g) {
      return (g.name() == name || g.name() == other) && !g.is_empty() && lower(g.value) != "steps";
    });
  }

  bool set_accumulation(const Given& g) {
    const std::optional<double> n = number_in(g.value);
    const double most = most_sequences();
    if (!n || *n != std::floor(*n) || *n < 1 || *n > most)
      return refuse(g, str("must be a whole number from 1 to ", most)), true;
    accumulation_ = static_cast<int64_t>(*n);
    return mapped_.push_back(line_of(g, "train.total_batch_size")), true;
  }

  // The launcher starts the ranks, and the batch of other trainers depends on their number.
  bool check_ranks(const Given& g) {
    if (number_in(g.value) == static_cast<double>(ranks_))
      return left(g, str("start them with --launch \"mpirun -np ", ranks_, '"'));
    refuse(g, str("is not the ", counted(ranks_, "rank"), " for which this converts: give --ranks ", g.text(),
                  ", and start as many with --launch \"mpirun -np ", g.text(), '"'));
    return true;
  }

  bool set_loss(const Given& g, const std::string& value) {
    if (value.ends_with("dpoloss")) return set(g, "train.loss", "\"dpo\""), true;
    return (value.ends_with("crossentropyloss") || contains(value, "cewithchunkedoutputloss")) &&
           left(g, "the loss is the cross-entropy");
  }

  bool set_compute(const Given& g, const char* dtype, const std::string& value) {
    const std::optional<bool> on = flag_in(value);
    if (on.value_or(false) || value == "auto" || value == "full")
      return set(g, "precision.compute", dtype), true;
    if (!on) return false;
    computes_fp32_ = true;
    return mapped_.push_back(line_of(g, "precision.compute")), true;
  }
  // Switches take precedence over the dtype in which the file loads weights.
  void set_precision() {
    if (!dtype_.empty() && set_.emplace("precision.compute", flatshard::quoted(dtype_)).second) return;
    if (computes_fp32_) set_.emplace("precision.compute", "\"fp32\"");
  }

  bool set_adapter(const Given& g, const std::string& value) {
    const std::optional<bool> on = flag_in(value);
    if (!on && value != "lora" && value != "qlora") return false;
    adapts_ = on.value_or(true);
    if (!*adapts_) return left(g, "no adapter");
    mapped_.push_back(line_of(g, "lora.rank"));
    four_bit_ |= value == "qlora";
    return true;
  }
  bool set_four_bit(const Given& g, bool on) {
    if (!on) return left(g, "the base is not quantized");
    four_bit_ = true;
    return mapped_.push_back(line_of(g, "quant.base")), true;
  }
  // Keys of adapters and of 4-bit weights have an effect only where a switch asks for them.
  void set_adapters() {
    if (&trainer_ == &kAxolotl) adapts_ = adapts_.value_or(false);
    const bool continues = set_.contains("model.adapter"), has_rank = set_.contains("lora.rank");
    const bool adapts = adapts_.value_or(has_rank) || continues;
    if (continues)
      drop_section("lora.", "model.adapter is continued as it is");
    else if (!adapts)
      drop_section("lora.", "no adapters are asked for");
    else if (!has_rank)
      problems_.add(name_ + ": adapters are asked for, but not of which rank: add lora_r");
    if (!four_bit_) return drop_section("quant.", "4-bit weights are not asked for");
    if (!adapts)
      problems_.add(name_ +
                    ": 4-bit weights are asked for, but no adapters, which alone can be trained on them");
    set_.emplace("quant.base", "\"nf4\"");
    if (trainer_.nests_scales && set_.emplace("quant.double", "true").second)
      defaults_.push_back("quant.double = true");
  }

  bool split_targets(const Given& g) {
    Given each = g;
    for (size_t begin = 0; begin <= g.value.size();) {
      const size_t end = std::min(g.value.find(',', begin), g.value.size());
      each.items.push_back(g.value.substr(begin, end - begin));
      begin = end + 1;
    }
    return copy(each, *field_of("lora.targets")), true;
  }

  // Notes a number of events per epoch, which is a fraction of the run once the number of epochs is known.
  bool by_epoch(const Given& g, bool saves) {
    const double times = number_in(g.value).value_or(0);
    if (times <= 0 || times > kMostSteps) return false;
    (saves ? saves_per_epoch_ : evals_per_epoch_) = times;
    mapped_.push_back(line_of(g, saves ? "checkpoint.save_every" : "train.eval_every"));
    return true;
  }
  void set_periods() {
    const auto found = set_.find("train.epochs");
    const double epochs = found == set_.end() ? 0 : number_in(found->second).value_or(0);
    if (epochs <= 0) return;
    const auto add_period = [&](const char* key, const char* each, double per_epoch) {
      const double fraction = 1 / (per_epoch * epochs);
      if (per_epoch == 1)
        set_.emplace(each, "true");
      else if (per_epoch > 0)
        set_.emplace(key, str(fraction));
    };
    add_period("train.eval_every", "train.eval_each_epoch", evals_per_epoch_);
    add_period("checkpoint.save_every", "checkpoint.save_each_epoch", saves_per_epoch_);
  }

  bool by_strategy(const Given& g, const std::string& value, bool saves) {
    const std::string each = saves ? "checkpoint.save_each_epoch" : "train.eval_each_epoch";
    if (value == "epoch") return set(g, each, "true"), true;
    if (value == "no" || value == "false")
      return set(g, saves ? "checkpoint.save_every" : "train.eval_every", "0"), true;
    return left(g, saves ? "save_steps says how often" : "eval_steps says how often");
  }

  // Whether a name such as adamw_torch_fused consists of `rule`, of words that set_optimizer() reads and of
  // words about its kernels. The name galore_adamw does not.
  static bool is_plain(std::string name, const std::string& rule) {
    for (const std::string& part :
         std::vector<std::string>{rule, "bitsandbytes", "bnb", "torch", "optim", "paged", "8bit", "32bit",
                                  "fused", "apex", "hf", "xla", "npu"})
      for (size_t at; (at = name.find(part)) != name.npos;) name.erase(at, part.size());
    return name.find_first_not_of("._") == name.npos;
  }

  bool set_optimizer(const Given& g, const std::string& value) {
    for (const OptimizerKind& kind : optimizer_kinds()) {
      const std::string name = kind.name, rule = name.substr(0, name.find("8bit"));
      if (!contains(value, rule.c_str()) || !is_plain(value, rule)) continue;
      if (contains(value, "8bit") != contains(name, "8bit")) continue;
      return set(g, "optimizer.kind", quoted(name_of({&kind, contains(value, "paged")}))), true;
    }
    return false;
  }

  bool set_schedule(const Given& g, const std::string& value) {
    for (const char* kind : {"cosine", "linear", "constant"})
      if (contains(value, kind) && !contains(value, "restarts") && !contains(value, "inverse"))
        return set(g, "schedule.kind", quoted(kind)), true;
    if (contains(value, "warmup_stable_decay")) return set(g, "schedule.kind", "\"wsd\""), true;
    return false;
  }

  static const char* dtype_in(const std::string& value) {
    return contains(value, "bf16") || contains(value, "bfloat16")  ? "bf16"
           : contains(value, "fp16") || contains(value, "float16") ? "fp16"
           : contains(value, "fp32") || contains(value, "float32") ? "fp32"
                                                                   : nullptr;
  }
  bool set_dtype(const Given& g, const std::string& value) {
    if (value == "auto") return left(g, "master weights are fp32, whatever the dtype of the folder");
    const char* const ours = dtype_in(value);
    if (ours == nullptr || (!dtype_.empty() && dtype_ != ours)) return false;
    dtype_ = ours;
    return mapped_.push_back(line_of(g, "precision.compute, unless bf16 or fp16 sets it")), true;
  }

  // torchtune lists the layers of attention by name, and has switches for the layers of the MLP.
  bool add_targets(const Given& g, const std::string& name, bool on) {
    std::vector<std::string> more = g.items;
    if (name == "apply_lora_to_mlp" && on) more = {"gate_proj", "up_proj", "down_proj"};
    if (name == "apply_lora_to_output" && on) more = {"lm_head"};
    if (more.empty()) return left(g, "no more layers");
    for (std::string& target : more) {
      if (target == "output_proj") target = "o_proj";
      targets_.push_back(target);
    }
    set_again("lora.targets", list_of(targets_));
    mapped_.push_back(line_of(g, "lora.targets"));
    return true;
  }

  // "\"none\" for false": the setting that a row of the table gives for this value.
  static std::optional<std::string> clause_for(const Given& g, const std::string& meaning) {
    static const std::regex clause(R"re(("[^"]*"|true|false|[0-9]+)( for (stage )?([A-Za-z0-9_]+))?)re");
    const std::string value = g.words().size() == 1 ? g.words().front() : "";
    for (std::sregex_iterator it(meaning.begin(), meaning.end(), clause), end; it != end; ++it) {
      const std::string ours = (*it)[1], theirs = lower((*it)[4]);
      if (theirs.empty() ? ours == quoted(value) : theirs == value) return ours;
    }
    return {};
  }

  // Our field of the same spelling: by the whole path, or by the last part alone if only one of our keys ends
  // in it.
  const Field* own_field(const Given& g) {
    if (foreign_key(g.path) != nullptr) return nullptr;
    const Field* found = nullptr;
    for (const Field& field : fields_) {
      if (field.key == g.path) return &field;
      if (name_in_section(field.key) != g.name()) continue;
      if (found != nullptr) return nullptr;
      found = &field;
    }
    return found;
  }
  double most_sequences() const { return field_of("train.total_batch_size")->bounds.most; }
  const Field* field_of(const std::string& key) const {
    for (const Field& field : fields_)
      if (field.key == key) return &field;
    return nullptr;
  }

  void copy(const Given& g, const Field& field, const char* remark = "") {
    const std::optional<std::string> toml = std::visit(AsToml{field, g.value, g.items}, field.slot);
    if (!toml) return leave_or_refuse(g, field, str("does not fit ", field.key, ", ", field.help));
    const std::optional<double> number = g.items.empty() ? number_in(g.value) : std::nullopt;
    if (number && (*number < field.bounds.least || *number > field.bounds.most))
      return refuse(g, str("is outside the bounds of ", field.key, ", ", field.bounds.least, " to ",
                           field.bounds.most));
    set(g, field.key, *toml, remark);
  }
  void set(const Given& g, const std::string& key, const std::string& toml, const std::string& remark = "") {
    const auto [at, is_new] = set_.emplace(key, toml);
    if (!is_new && at->second != toml)
      return leave_or_refuse(g, *field_of(key), str("sets ", key, ", which is ", at->second, " already"));
    mapped_.push_back(line_of(g, key + (remark.empty() ? "" : ", " + remark)));
  }
  void set_again(const std::string& key, const std::string& toml) { set_[key] = toml; }
  void leave(const Given& g, const std::string& why) { left_.push_back(line_of(g, why)); }
  bool left(const Given& g, const std::string& why) { return leave(g, why), true; }
  void refuse(const Given& g, const std::string& why) {
    problems_.add(str(name_, ':', g.line, ": ", printable(g.path), " = ", g.text(), ": ", why,
                      "; to convert without it, remove it"));
  }
  // A key without a translation.
  void leave_or_refuse(const Given& g, const Field& field, const std::string& why) {
    const OnResume rule = field.on_resume->rule;
    const bool is_trained =
        (rule != OnResume::noted && rule != OnResume::silent) || field.key == "model.init_from";
    is_trained ? refuse(g, why) : leave(g, why);
  }
  std::string line_of(const Given& g, const std::string& what) const {
    return str(g.line, ": ", printable(g.path), g.text().empty() ? "" : " = " + g.text(), "  ->  ", what);
  }

  void add_default(const Default& d) {
    if (d.key == std::string("train.epochs") && set_.contains("train.steps")) return;
    if (set_.emplace(d.key, d.toml).second) defaults_.push_back(str(d.key, " = ", d.toml));
  }

  // A limit on steps takes precedence over epochs, as it does in other trainers.
  void set_length() {
    if (set_.contains("train.steps") && set_.erase("train.epochs") > 0)
      notes_.push_back("train.epochs is left out: train.steps decides");
  }

  void set_batch() {
    const auto per_device = set_.find("train.batch_size_per_device");
    const int64_t micro =
        per_device == set_.end() ? 1 : static_cast<int64_t>(number_in(per_device->second).value_or(1));
    const std::string of =
        str(micro, " per device x ", accumulation_, " accumulated x ", counted(ranks_, "rank"));
    const int64_t total = micro * accumulation_ * ranks_;  // its factors are at most 2^18, 2^18 and 2^20
    if (const double most = most_sequences(); static_cast<double>(total) > most)
      problems_.add(str(name_, ": the batch has ", total, " sequences, ", of, ", must have at most ", most));
    const std::string toml = str(total);
    if (set_.emplace("train.total_batch_size", toml).second)
      notes_.push_back(str("train.total_batch_size = ", toml, ": ", of,
                           ranks_ == 1 ? " (--ranks N for another number)" : ""));
  }

  // Drops a setting that a run would refuse because nothing uses it.
  void drop(const std::string& key, const char* why) {
    if (set_.erase(key) > 0) notes_.push_back(str(key, " is left out: ", why));
  }
  void drop_section(const std::string& section, const char* why) {
    for (const Field& field : fields_)
      if (field.key.starts_with(section)) drop(field.key, why);
  }
  void drop_without_effect() {
    if (!set_.contains("data.eval"))
      for (const char* key : {"train.eval_every", "train.eval_each_epoch", "train.stop_after_no_improvement"})
        drop(key, "there is no data.eval");
    if (const auto compute = set_.find("precision.compute");
        compute != set_.end() && compute->second != "\"fp32\"")
      drop("precision.tf32", "precision.compute is not fp32");
    if (const auto steps = set_.find("schedule.warmup_steps"); steps != set_.end() && steps->second != "0")
      drop("schedule.warmup_ratio", "schedule.warmup_steps decides");
    if (!set_.contains("data.seq_len"))
      notes_.push_back("data.seq_len is missing: set it below, or give --data.seq_len=N");
    if (!set_.contains("data.train"))
      notes_.push_back("data.train is missing: set it below, or give --data.train=FILE");
    if (!set_.contains("model.init_from"))
      notes_.push_back("model.init_from is missing: set it below, or give --model.init_from=FOLDER");
  }

  std::string account() const {
    std::string text = str("# From ", name_, ", read as a config of ", trainer_.name, ".\n");
    const auto list = [&](const char* title, const std::vector<std::string>& lines) {
      if (lines.empty()) return;
      text += str("#\n# ", title, "\n");
      for (const std::string& line : lines) text += str("#   ", line, '\n');
    };
    list("Mapped, by line:", mapped_);
    list("Not mapped:", left_);
    list(str("Defaults of ", trainer_.name, " that differ from ours:").c_str(), defaults_);
    list("Notes:", notes_);
    return text;
  }

  std::string toml() const {
    std::string text, section;
    for (const Field& field : fields_) {
      const auto found = set_.find(field.key);
      if (found == set_.end()) continue;
      if (section_of(field.key) != section) text += str("\n[", section = section_of(field.key), "]\n");
      text += str(name_in_section(field.key), " = ", found->second, '\n');
    }
    return text;
  }

  Config config_{};
  const std::vector<Field> fields_ = fields(config_);
  std::string name_;
  std::vector<Given> given_;
  const Trainer& trainer_;
  int ranks_;
  std::map<std::string, std::string> set_{};  // key -> TOML
  std::vector<std::string> mapped_{}, left_{}, defaults_{}, notes_{}, targets_{};
  Problems problems_{};
  int64_t accumulation_ = 1;
  double evals_per_epoch_ = 0, saves_per_epoch_ = 0;
  bool computes_fp32_ = false;  // a switch asks for fp32, unless another key names a dtype
  std::string dtype_{};         // dtype in which the file loads weights
  std::optional<bool> adapts_{};
  bool four_bit_ = false;
  std::array<double, 2> betas_{0.9, 0.999};
};

// A list of mappings is one of axolotl's lists of data sets: the paths of its mappings are the value.
void add(std::vector<Given>& all, const std::vector<YamlEntry>& entries, const std::string& prefix) {
  for (const YamlEntry& entry : entries) {
    const std::string path = prefix + entry.key;
    if (entry.kind == YamlEntry::Kind::mapping) {
      add(all, entry.members, path + '.');
      continue;
    }
    Given given{.path = path, .value = entry.value, .items = entry.items, .line = entry.line};
    std::vector<YamlEntry> others;
    for (const std::vector<YamlEntry>& record : entry.records)
      for (const YamlEntry& member : record)
        if (member.key == "path" && member.kind == YamlEntry::Kind::scalar)
          given.items.push_back(member.value);
        else
          others.push_back(member);
    if (given.items.size() == 1 && !entry.records.empty()) {
      given.value = given.items.front();
      given.items.clear();
    }
    all.push_back(given);
    add(all, others, path + '.');
  }
}

// Replaces references such as ${output_dir} in ${output_dir}/logs, with which torchtune's files use their own
// values.
void replace_references(std::vector<Given>& all) {
  for (Given& given : all)
    for (const Given& other : all) {
      const std::string reference = "${" + other.path + '}';
      const size_t at = given.value.find(reference);
      if (at != std::string::npos && &given != &other) given.value.replace(at, reference.size(), other.value);
    }
}

}  // namespace

std::string converted_config(const std::string& path, int ranks) {
  const std::string name = printable(path);
  std::vector<Given> all;
  add(all, parse_yaml_mapping(read_whole_file(path, kMostFileBytes), name, YamlLists::of_mappings_too), "");
  check(!all.empty(), name, ": has no keys");
  for (const Given& given : all)
    check(given.path != "compute_environment" && given.path != "distributed_type", name, ':', given.line,
          ": ", given.path,
          " is a key of accelerate's configuration file, which is not converted: train --accelerate ", name,
          " my.toml reads it");
  replace_references(all);
  return Converter(name, std::move(all), ranks).convert();
}

}  // namespace flatshard
