#include "train/config/foreign_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "comm/optimizer_kinds.h"
#include "runtime/check.h"
#include "runtime/named.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/config/foreign_import.h"
#include "train/config/yaml_mapping.h"

namespace flatshard {
namespace {

enum class Trainer { axolotl, torchtune, trl };
constexpr auto value_names(Trainer) { return std::array{"axolotl", "torchtune", "TRL"}; }

// The defaults of each trainer for settings that its file omits; null: ours.
struct Default {
  const char* key;
  std::array<const char*, 3> toml;
};
constexpr Default kDefaults[] = {
    {"optimizer.betas", {"[0.9, 0.999]", "[0.9, 0.999]", "[0.9, 0.999]"}},
    {"optimizer.grad_clip", {"1.0", "0.0", "1.0"}},
    {"optimizer.lr", {nullptr, nullptr, "2e-5"}},
    {"optimizer.no_decay", {"[\"norm\", \"bias\"]", "[]", "[\"norm\", \"bias\"]"}},
    {"schedule.kind", {"\"cosine\"", "\"constant\"", "\"linear\""}},
    {"data.packing", {"\"none\"", "\"none\"", "\"none\""}},
    {"data.seq_len", {nullptr, nullptr, "1024"}},
    {"data.train_on", {"\"assistant\"", nullptr, "\"all\""}},
    {"train.batch_size_per_device", {nullptr, nullptr, "8"}},
    {"train.epochs", {"1.0", nullptr, "3.0"}},
    {"train.recompute", {nullptr, nullptr, "true"}},
};

Trainer trainer_of(const std::vector<Given>& all) {
  const auto has = [&](const char* names) {
    return std::any_of(all.begin(), all.end(), [&](const Given& g) { return is_among(g.name(), names); });
  };
  if (has("_component_")) return Trainer::torchtune;
  return has("base_model sequence_len micro_batch_size") ? Trainer::axolotl : Trainer::trl;
}

class Converter : public ForeignImport {
 public:
  Converter(std::string name, std::vector<Given> given, int ranks)
      : ForeignImport(std::move(given), true),
        name_(std::move(name)),
        trainer_(trainer_of(given_)),
        ranks_(ranks) {}

  std::string convert() {
    for (const Given& g : given_) translate(g);
    set_adapters();
    for (const Default& d : kDefaults) set_default(d.key, d.toml[static_cast<size_t>(trainer_)]);
    set_periods();
    set_length();
    set_batch();
    drop_without_effect();
    problems_.raise();
    return account() + toml();
  }

 private:
  using Rule = bool (Converter::*)(const Given&, const ForeignKey&, const ForeignValue*);

  bool by_rule(const Given& g, const ForeignKey& row, const ForeignValue* value) override {
    static const std::map<ForeignRule, Rule> rules{{ForeignRule::accumulation, &Converter::set_accumulation},
                                                   {ForeignRule::beta, &Converter::set_beta},
                                                   {ForeignRule::chat_ends, &Converter::leave_chat_ends},
                                                   {ForeignRule::more_targets, &Converter::add_targets},
                                                   {ForeignRule::optimizer, &Converter::set_optimizer},
                                                   {ForeignRule::packing, &Converter::leave_packing},
                                                   {ForeignRule::per_epoch, &Converter::set_per_epoch},
                                                   {ForeignRule::precision, &Converter::set_precision},
                                                   {ForeignRule::ranks, &Converter::check_ranks},
                                                   {ForeignRule::steps, &Converter::leave_steps},
                                                   {ForeignRule::targets, &Converter::set_targets},
                                                   {ForeignRule::warmup, &Converter::set_warmup}};
    const auto rule = rules.find(row.rule);
    return rule != rules.end() && (this->*rule->second)(g, row, value);
  }

  // Whether a key with this rule and of this key of ours has such a value.
  template <class Has>
  bool any_given(ForeignRule rule, const std::string& key, const Has& has) const {
    return std::any_of(given_.begin(), given_.end(), [&](const Given& g) {
      const ForeignKey* const row = foreign_key(g.path);
      return row && row->rule == rule && row->key == key && has(g);
    });
  }

  double most_sequences() const { return field("train.total_batch_size").bounds.most; }
  bool set_accumulation(const Given& g, const ForeignKey& row, const ForeignValue*) {
    const std::optional<double> n = number_in(g.value);
    const double most = most_sequences();
    if (!n || *n != std::floor(*n) || *n < 1 || *n > most)
      return refuse(g, str("must be a whole number from 1 to ", most));
    accumulation_ = static_cast<int64_t>(*n);
    return map(g, row.key);
  }

  // The launcher starts the ranks, and the batch of other trainers depends on their number.
  bool check_ranks(const Given& g, const ForeignKey&, const ForeignValue*) {
    if (number_in(g.value) == static_cast<double>(ranks_))
      return leave(g, str("start them with --ranks ", ranks_));
    return refuse(g, str("is not the ", counted(ranks_, "rank"), " for which this converts: give --ranks ",
                         g.text(), ", and start as many with --ranks ", g.text()));
  }

  // A number of steps has no effect if another strategy than "steps" is given for the same key.
  bool leave_steps(const Given& g, const ForeignKey& steps, const ForeignValue*) {
    const auto is_other = [](const Given& other) {
      return !other.is_empty() && lower(other.value) != "steps";
    };
    return any_given(ForeignRule::strategy, steps.key, is_other) && leave(g, "the strategy is another");
  }

  // A number of events per epoch is a fraction of the run, once the number of epochs is known.
  bool set_per_epoch(const Given& g, const ForeignKey& row, const ForeignValue*) {
    const double times = number_in(g.value).value_or(0);
    if (times <= 0 || times > kMostSteps) return false;
    per_epoch_[row.key] = times;
    return map(g, row.key);
  }
  void set_periods() {
    const double epochs = number_in(value_of("train.epochs")).value_or(0);
    for (const auto& [key, times] : per_epoch_)
      if (times == 1 && epochs > 0)
        set_if_missing(key == "train.eval_every" ? "train.eval_each_epoch" : "checkpoint.save_each_epoch",
                       "true");
      else if (epochs > 0)
        set_if_missing(key, str(1 / (times * epochs)));
  }

  // adamw_torch_fused is adamw: words about the kernels of an optimizer do not count. The name galore_adamw
  // is none of ours.
  bool set_optimizer(const Given& g, const ForeignKey& row, const ForeignValue*) {
    const auto without_kernels = [](std::string name) {
      for (const std::string part :
           {"bitsandbytes", "bnb", "torch", "optim", "32bit", "fused", "apex", "hf", "xla", "npu", ".", "_"})
        for (size_t at; (at = name.find(part)) != name.npos;) name.erase(at, part.size());
      return name;
    };
    for (const std::string& name : optimizer_names())
      if (without_kernels(lower(g.value)) == without_kernels(name)) return set(g, row.key, quoted(name));
    return false;
  }

  bool set_warmup(const Given& g, const ForeignKey&, const ForeignValue*) {
    const double steps = number_in(g.value).value_or(0);
    return steps > 0 && steps < 1 && copy(g, "schedule.warmup_ratio");
  }

  bool set_beta(const Given& g, const ForeignKey& row, const ForeignValue*) {
    const std::optional<double> n = number_in(g.value);
    if (!n || *n < 0 || *n > 1) return refuse(g, "must be a number from 0 to 1");
    betas_[g.name().back() - '1'] = *n;
    set_[row.key].toml = str('[', betas_[0], ", ", betas_[1], ']');
    return map(g, row.key);
  }

  // A switch that is on takes precedence over the dtype in which weights are loaded, and that over a switch
  // that is off.
  bool set_precision(const Given& g, const ForeignKey& row, const ForeignValue* value) {
    if (!value || !value->ours || *value->ours == 0) return false;
    const bool is_dtype = g.name().ends_with("dtype"), is_off = flag_in(g.value) == false;
    const int precedence = is_dtype ? 1 : is_off ? 0 : 2;
    if (precedence < precedence_) return leave(g, str("another key sets ", row.key));
    if (precedence > precedence_) set_.erase(row.key);
    precedence_ = precedence;
    return set(g, row.key, quoted(value->ours), is_dtype ? "unless bf16 or fp16 sets it" : "");
  }

  bool leave_chat_ends(const Given& g, const ForeignKey&, const ForeignValue*) {
    const Given* const format = find("chat_template_format");
    return format && !format->is_empty() &&
           leave(g, "special tokens of a conversation are those of its chat template");
  }

  bool leave_packing(const Given& g, const ForeignKey& row, const ForeignValue*) {
    const auto packs = [](const Given& other) { return flag_in(other.value) == true; };
    return !any_given(ForeignRule::none, row.key, packs) && leave(g, "sequences are not packed");
  }

  bool set_targets(const Given& g, const ForeignKey& row, const ForeignValue*) {
    if (!g.items.empty() && set_.contains(row.key)) return leave(g, str(row.key, " is already set"));
    Given each = g;
    each.items = split(g.value, ',');
    return each.items.size() > 1 && copy(each, row.key);
  }
  // torchtune lists the layers of attention by name, and has switches for the layers of the MLP.
  bool add_targets(const Given& g, const ForeignKey& row, const ForeignValue* value) {
    const std::vector<std::string> more = value ? split(value->ours, ',') : g.items;
    for (const std::string& target : more) targets_.push_back(target == "output_proj" ? "o_proj" : target);
    if (!more.empty()) set_[row.key].toml = *toml_for(field(row.key), "", targets_);
    return !more.empty() && map(g, row.key);
  }

  // Keys of adapters and of 4-bit weights have an effect only where a switch asks for them.
  void set_adapters() {
    const bool continues = set_.contains("model.adapter"), has_rank = set_.contains("lora.rank");
    const bool by_default = has_rank && trainer_ != Trainer::axolotl;
    const bool adapts = (asked_.contains("lora") ? asked_["lora"] : by_default) || continues;
    if (continues)
      drop_section("lora.", "model.adapter is continued as it is");
    else if (!adapts)
      drop_section("lora.", "no adapters are asked for");
    else if (!has_rank)
      problems_.add(name_ + ": adapters are asked for, but not of which rank: add lora_r");
    if (!asked_["quant"]) return drop_section("quant.", "4-bit weights are not asked for");
    if (!adapts)
      problems_.add(name_ +
                    ": 4-bit weights are asked for, but no adapters, which alone can be trained on them");
    set_if_missing("quant.base", "\"nf4\"");
    if (trainer_ != Trainer::trl) set_default("quant.double", "true");
  }

  void set_default(const std::string& key, const char* toml) {
    const bool is_length = key == "train.epochs" && set_.contains("train.steps");
    if (toml && !is_length && set_if_missing(key, toml)) defaults_.push_back(key + " = " + toml);
  }

  // A limit on steps takes precedence over epochs, as it does in other trainers.
  void set_length() {
    if (set_.contains("train.steps") && set_.erase("train.epochs") > 0)
      notes_.push_back("train.epochs is left out: train.steps decides");
  }

  void set_batch() {
    const auto micro = static_cast<int64_t>(number_in(value_of("train.batch_size_per_device")).value_or(1));
    const std::string of =
        str(micro, " per device x ", accumulation_, " accumulated x ", counted(ranks_, "rank"));
    const int64_t total = micro * accumulation_ * ranks_;  // its factors are at most 2^18, 2^18 and 2^20
    if (const double most = most_sequences(); static_cast<double>(total) > most)
      problems_.add(str(name_, ": the batch has ", total, " sequences, ", of, ", must have at most ", most));
    const std::string toml = str(total);
    if (set_if_missing("train.total_batch_size", toml))
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
    if (set_.contains("precision.compute") && value_of("precision.compute") != "\"fp32\"")
      drop("precision.tf32", "precision.compute is not fp32");
    if (set_.contains("schedule.warmup_steps") && value_of("schedule.warmup_steps") != "0")
      drop("schedule.warmup_ratio", "schedule.warmup_steps decides");
    if (value_of("parallel.strategy") == "\"hybrid\"")
      drop("parallel.strategy", "hybrid needs parallel.group_size");
    if (value_of("parallel.wrap") != "\"size\"") drop("parallel.wrap_size", "parallel.wrap is not size");
    for (const auto& [key, value] :
         {std::pair("data.seq_len", "N"), {"data.train", "FILE"}, {"model.init_from", "FOLDER"}})
      if (!set_.contains(key))
        notes_.push_back(str(key, " is missing: set it below, or give --", key, '=', value));
  }

  static std::vector<std::string> lines_of(const std::vector<Outcome>& all) {
    std::vector<std::string> lines;
    for (const auto& [g, text] : all)
      lines.push_back(
          str(g.line, ": ", printable(g.path), g.is_empty() ? "" : " = " + g.text(), "  ->  ", text));
    return lines;
  }
  std::string account() const {
    std::string text = str("# From ", name_, ", read as a config of ", name_of(trainer_), ".\n");
    const auto list = [&](const char* title, const std::vector<std::string>& lines) {
      if (lines.empty()) return;
      text += str("#\n# ", title, "\n");
      for (const std::string& line : lines) text += str("#   ", line, '\n');
    };
    list("Mapped, by line:", lines_of(mapped_));
    list("Not mapped:", lines_of(left_));
    list(str("Defaults of ", name_of(trainer_), " that differ from ours:").c_str(), defaults_);
    list("Notes:", notes_);
    return text;
  }

  std::string toml() const {
    std::string text, section;
    for (const Field& field : fields_) {
      const auto found = set_.find(field.key);
      if (found == set_.end()) continue;
      if (section_of(field.key) != section) text += str("\n[", section = section_of(field.key), "]\n");
      text += str(name_in_section(field.key), " = ", found->second.toml, '\n');
    }
    return text;
  }

  const std::string name_;
  const Trainer trainer_;
  const int ranks_;
  std::vector<std::string> defaults_{}, notes_{}, targets_{};
  int64_t accumulation_ = 1;
  std::map<std::string, double> per_epoch_{};  // key -> number of events
  int precedence_ = -1;                        // of the key that sets precision.compute
  std::array<double, 2> betas_{0.9, 0.999};
};

// A list of mappings is one of axolotl's lists of data sets: the paths of its mappings are the value.
void add(std::vector<Given>& all, const std::vector<YamlEntry>& entries, const std::string& file,
         const std::string& prefix) {
  for (const YamlEntry& entry : entries) {
    const std::string path = prefix + entry.key;
    if (entry.kind == YamlEntry::Kind::mapping) {
      add(all, entry.members, file, path + '.');
      continue;
    }
    Given given{path, entry.value, entry.items, str(file, ':', entry.line), entry.line};
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
    add(all, others, file, path + '.');
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
  add(all, parse_yaml_mapping(read_whole_file(path, kMostForeignBytes), name, YamlLists::of_mappings_too),
      name, "");
  check(!all.empty(), name, ": has no keys");
  for (const Given& given : all)
    check(given.path != "compute_environment" && given.path != "distributed_type", given.origin, ": ",
          given.path,
          " is a key of accelerate's configuration file, which is not converted: train --accelerate ", name,
          " my.toml reads it");
  replace_references(all);
  return Converter(name, std::move(all), ranks).convert();
}

}  // namespace flatshard
