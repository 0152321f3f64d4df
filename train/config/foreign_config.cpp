#include "train/config/foreign_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <regex>

#include "runtime/check.h"
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
  std::string text() const {
    std::string all;
    for (const std::string& item : items) all += (all.empty() ? "" : ", ") + item;
    return printable(items.empty() ? value : '[' + all + ']');
  }
};

// A setting that a trainer makes where its file is silent.
struct Default {
  const char *key, *toml;
};
struct Trainer {
  const char* name;
  std::vector<Default> defaults;
};

const std::vector<Default> kOfTransformers{{"optimizer.betas", "[0.9, 0.999]"},
                                           {"optimizer.no_decay", "[\"norm\", \"bias\"]"},
                                           {"optimizer.grad_clip", "1.0"},
                                           {"data.packing", "\"none\""}};

Trainer with(const char* name, std::vector<Default> own) {
  own.insert(own.end(), kOfTransformers.begin(), kOfTransformers.end());
  return {name, own};
}

// What files of TRL leave out is written here as SFTConfig has it.
const Trainer kTrl = with("TRL", {{"optimizer.lr", "2e-5"},
                                  {"train.epochs", "3.0"},
                                  {"train.batch_size_per_device", "8"},
                                  {"data.seq_len", "1024"},
                                  {"data.train_on", "\"all\""},
                                  {"schedule.kind", "\"linear\""},
                                  {"train.recompute", "true"}}),
              kAxolotl = with("axolotl", {{"schedule.kind", "\"cosine\""},
                                          {"data.train_on", "\"assistant\""},
                                          {"train.epochs", "1.0"}}),
              kTorchtune{"torchtune",
                         {{"optimizer.betas", "[0.9, 0.999]"},
                          {"optimizer.no_decay", "[]"},
                          {"optimizer.grad_clip", "0.0"},
                          {"schedule.kind", "\"constant\""},
                          {"data.packing", "\"none\""}}};

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
    for (const Default& d : trainer_.defaults) add_default(d);
    set_periods();
    set_length();
    set_batch();
    drop_without_effect();
    return account() + toml();
  }

 private:
  void translate(const Given& g) {
    if (g.value.empty() && g.items.empty()) return leave(g, "is empty");
    if (const Field* own = own_field(g)) return copy(g, *own);
    const ForeignKey* const row = foreign_key(g.path);
    if (row == nullptr) return leave(g, "is not known here");
    if (by_rule(g)) return;
    if (*row->key == 0) return leave(g, row->value);
    const Field& field = *field_of(row->key);
    if (*row->value == 0) return copy(g, field);
    if (const std::optional<std::string> clause = clause_for(g, row->value)) return set(g, row->key, *clause);
    const std::string_view meaning = row->value;
    const bool is_path = (std::holds_alternative<std::string*>(field.slot) ||
                          std::holds_alternative<DataFiles*>(field.slot)) &&
                         (meaning.starts_with("a folder") || meaning.starts_with("the folder") ||
                          meaning.starts_with("a .") || meaning.starts_with("a file"));
    if (is_path && !flag_in(g.value) && !number_in(g.value)) return copy(g, field, row->value);
    leave(g, str(row->key, " = ", row->value));
  }

  // Keys whose meaning depends on more than their value. Returns whether it has dealt with this one.
  bool by_rule(const Given& g) {
    const std::string name = lower(g.name()), value = lower(g.value);
    const std::optional<bool> on = flag_in(g.value);
    if (name == "gradient_accumulation_steps" || name == "grad_accum_steps") {
      accumulation_ = number_in(g.value);
      if (accumulation_) mapped_.push_back(line_of(g, "train.total_batch_size"));
      return accumulation_.has_value();
    }
    if ((name == "max_steps" || name == "max_steps_per_epoch") && number_in(g.value).value_or(0) <= 0)
      return left(g, "no limit on steps");
    if (name == "eval_strategy" || name == "evaluation_strategy" || name == "save_strategy")
      return by_strategy(g, value, name == "save_strategy");
    if (contains(lower(g.path), "optim") && (name == "optim" || name == "optimizer" || name == "_component_"))
      return set_optimizer(g, value);
    if (contains(lower(g.path), "lr_scheduler") &&
        (name.starts_with("lr_scheduler") || name == "_component_"))
      return set_schedule(g, value);
    if ((name == "bf16" || name == "fp16") && (on.value_or(false) || value == "auto" || value == "full"))
      return set(g, "precision.compute", quoted(name)), true;
    if ((name == "bf16" || name == "fp16") && on) {
      computes_fp32_ = true;
      return mapped_.push_back(line_of(g, "precision.compute")), true;
    }
    if (name == "evals_per_epoch" || name == "saves_per_epoch") return by_epoch(g, name == "saves_per_epoch");
    if (name == "path" && value.ends_with(".model"))
      return left(g, "the tokenizer is that of model.init_from");
    if (name == "dtype" || name == "torch_dtype") return set_dtype(g, value);
    if (name == "adam_beta1" || name == "adam_beta2") {
      betas_[name.back() - '1'] = number_in(g.value).value_or(betas_[name.back() - '1']);
      set_again("optimizer.betas", str('[', betas_[0], ", ", betas_[1], ']'));
      mapped_.push_back(line_of(g, "optimizer.betas"));
      return true;
    }
    if (name == "adapter" || name == "use_peft")
      return on && !*on ? left(g, "no adapter") : (mapped_.push_back(line_of(g, "lora.rank")), true);
    if (name == "load_in_4bit" || name == "quantize_base") {
      if (on.value_or(false)) return set(g, "quant.base", "\"nf4\""), true;
      return left(g, "the base is not quantized");
    }
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

  // A number per epoch, which is a fraction of the run once the number of epochs is known.
  bool by_epoch(const Given& g, bool saves) {
    const double times = number_in(g.value).value_or(0);
    if (times <= 0) return false;
    (saves ? saves_per_epoch_ : evals_per_epoch_) = times;
    mapped_.push_back(line_of(g, saves ? "checkpoint.save_every" : "train.eval_every"));
    return true;
  }
  void set_periods() {
    if (computes_fp32_) set_.emplace("precision.compute", "\"fp32\"");
    const auto epochs = set_.find("train.epochs");
    if (epochs == set_.end()) return;
    const auto add_period = [&](const char* key, const char* each, double per_epoch) {
      const double fraction = 1 / (per_epoch * number_in(epochs->second).value_or(1));
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
    if (value == "no" || value == "false") {
      if (saves) return set(g, "checkpoint.save_every", "0"), true;
      return left(g, "no evaluation");
    }
    return left(g, saves ? "save_steps says how often" : "eval_steps says how often");
  }

  bool set_optimizer(const Given& g, const std::string& value) {
    const bool is_8bit = contains(value, "8bit"), is_paged = contains(value, "paged"),
               is_lion = contains(value, "lion"), is_adamw = contains(value, "adamw");
    if (!is_lion && !is_adamw) return false;
    const std::string base = is_lion ? "lion" : "adamw";
    for (const std::string& name : optimizer_names()) {
      const OptimizerChoice choice = optimizer_named(name).value();
      const bool fits = contains(name, base.c_str()) && choice.paged == is_paged &&
                        contains(name, "8bit") == is_8bit && (is_lion == contains(name, "lion"));
      if (fits) return set(g, "optimizer.kind", quoted(name)), true;
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

  bool set_dtype(const Given& g, const std::string& value) {
    const char* const ours = contains(value, "bf16") || contains(value, "bfloat16")  ? "bf16"
                             : contains(value, "fp16") || contains(value, "float16") ? "fp16"
                             : contains(value, "fp32") || contains(value, "float32") ? "fp32"
                                                                                     : nullptr;
    if (ours == nullptr) return false;
    return set(g, "precision.compute", quoted(ours)), true;
  }

  // torchtune names the layers of attention and asks for those of the MLP by switches.
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
    const std::string value = lower(g.value);
    for (std::sregex_iterator it(meaning.begin(), meaning.end(), clause), end; it != end; ++it) {
      const std::string ours = (*it)[1], theirs = lower((*it)[4]);
      if (theirs.empty() ? ours == quoted(value) : theirs == value) return ours;
    }
    return {};
  }

  // Keys that we spell alike: by their whole path, or by the last part alone if only one of ours ends so.
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
  const Field* field_of(const std::string& key) const {
    for (const Field& field : fields_)
      if (field.key == key) return &field;
    return nullptr;
  }

  void copy(const Given& g, const Field& field, const char* remark = "") {
    const std::optional<std::string> toml = std::visit(AsToml{field, g.value, g.items}, field.slot);
    if (!toml) return leave(g, str("does not fit ", field.key, ", ", field.help));
    set(g, field.key, *toml, remark);
  }
  void set(const Given& g, const std::string& key, const std::string& toml, const std::string& remark = "") {
    const auto [at, is_new] = set_.emplace(key, toml);
    if (!is_new && at->second != toml) return leave(g, str(key, " is ", at->second, " already"));
    mapped_.push_back(line_of(g, key + (remark.empty() ? "" : ", " + remark)));
  }
  void set_again(const std::string& key, const std::string& toml) { set_[key] = toml; }
  void leave(const Given& g, const std::string& why) { left_.push_back(line_of(g, why)); }
  bool left(const Given& g, const std::string& why) { return leave(g, why), true; }
  std::string line_of(const Given& g, const std::string& what) const {
    return str(g.line, ": ", printable(g.path), g.text().empty() ? "" : " = " + g.text(), "  ->  ", what);
  }

  void add_default(const Default& d) {
    if (d.key == std::string("train.epochs") && set_.contains("train.steps")) return;
    if (set_.emplace(d.key, d.toml).second) defaults_.push_back(str(d.key, " = ", d.toml));
  }

  // A limit on steps decides over epochs, elsewhere too.
  void set_length() {
    if (set_.contains("train.steps") && set_.erase("train.epochs") > 0)
      notes_.push_back("train.epochs is left out: train.steps decides");
  }

  void set_batch() {
    const auto per_device = set_.find("train.batch_size_per_device");
    const double micro = per_device == set_.end() ? 1 : *number_in(per_device->second),
                 total = micro * accumulation_.value_or(1) * ranks_;
    const std::string toml = str(static_cast<int64_t>(total));
    if (set_.emplace("train.total_batch_size", toml).second)
      notes_.push_back(str("train.total_batch_size = ", toml, ": ", micro, " per device x ",
                           accumulation_.value_or(1), " accumulated x ", counted(ranks_, "rank"),
                           ranks_ == 1 ? " (--ranks N for another number)" : ""));
  }

  // Settings that a run would refuse, as nothing uses them.
  void drop(const std::string& key, const char* why) {
    if (set_.erase(key) > 0) notes_.push_back(str(key, " is left out: ", why));
  }
  void drop_without_effect() {
    if (!set_.contains("data.eval"))
      for (const char* key : {"train.eval_every", "train.eval_each_epoch", "train.stop_after_no_improvement"})
        drop(key, "there is no data.eval");
    if (!set_.contains("lora.rank"))
      for (const char* key : {"lora.alpha", "lora.dropout", "lora.targets", "quant.base", "quant.double"})
        drop(key, "there is no lora.rank");
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
  std::optional<double> accumulation_{};
  double evals_per_epoch_ = 0, saves_per_epoch_ = 0;
  bool computes_fp32_ = false;  // unless another key names a dtype
  std::array<double, 2> betas_{0.9, 0.999};
};

// Lists of mappings are known as axolotl's data sets: their paths are the value.
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

// ${output_dir}/logs, as torchtune's files refer to their own values.
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
  replace_references(all);
  return Converter(name, std::move(all), ranks).convert();
}

}  // namespace flatshard
