#include "train/save/initial_weights.h"

#include <filesystem>
#include <set>

#include "hub/adapter_base.h"
#include "hub/hf_config.h"
#include "model/names.h"
#include "runtime/hub_id.h"
#include "runtime/log.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// Takes the keys of a section from a published file, except the free ones. A key that the config sets too
// must agree.
void take_keys(LoadedConfig& loaded, Config& published, const std::string& section, const std::string& path,
               const std::set<std::string>& free) {
  Problems problems;
  const auto given = config_values(loaded.config);
  for (const auto& [key, value] : config_values(published)) {
    if (!key.starts_with(section) || free.contains(key)) continue;
    std::string& origin = loaded.origin.at(key);
    if (origin != "default" && given.at(key) != value)
      problems.add(str(origin == "command line" ? "--" + key : origin, ": ", key, " is ", given.at(key),
                       ", but ", path, " says ", value, ": remove it"));
    origin = path;
  }
  problems.raise();
}

BaseAdvice advice_on(const std::string& adapter) {
  return {.right = "set model.init_from to the folder of that model",
          .other = str("to train on another, remove ", adapter, '/', kAdapterBaseName)};
}

// Whether the run continues the adapter of model.adapter, instead of training another on top of it.
bool continues_adapter(const Config& c) { return c.lora.init == LoraInit::adapter; }

void take_adapter(LoadedConfig& loaded) {
  Config& c = loaded.config;
  if (c.adapter.empty()) {
    check(!continues_adapter(c), "lora.init = \"adapter\" needs model.adapter, the folder of an adapter");
    return;
  }
  check(std::filesystem::is_directory(c.adapter), "model.adapter is \"", c.adapter, "\", which is no folder",
        download_advice(c.adapter));
  const std::string path = c.adapter + '/' + kAdapterConfigName;
  std::vector<std::string> warnings;
  const AdapterConfig adapter = read_adapter_config(path, warnings);
  for (const std::string& warning : warnings) log_warning(warning);
  if (c.init_from.empty()) {
    c.init_from = find_base(c.adapter, false, advice_on(c.adapter));
    loaded.origin.at("model.init_from") = path;
  }
  if (loaded.origin.at("lora.rank") != "default" && !continues_adapter(c)) return;
  Config published;
  published.lora = selection_of(adapter, read_published_config(c.init_from).family);
  published.lora.init = LoraInit::adapter;
  if (loaded.origin.at("lora.dropout") != "default") published.lora.dropout = c.lora.dropout;
  take_keys(loaded, published, "lora.", path, {});
  c.lora = published.lora;
}

}  // namespace

void take_published_model(LoadedConfig& loaded) {
  take_adapter(loaded);
  Config& c = loaded.config;
  if (c.init_from.empty()) return;
  const std::string path = published_config_path(c.init_from);
  Config published;
  published.model = read_published_config(c.init_from);
  const bool has_vocab = loaded.origin.at("model.vocab") != "default";
  const int64_t vocab = has_vocab ? c.model.vocab : published.model.vocab;
  std::set<std::string> free{"model.init_from", "model.adapter", "model.trainable",
                             "model.pad_to_multiple_of"};
  if (has_vocab) free.insert("model.vocab");
  take_keys(loaded, published, "model.", path, free);
  check(vocab >= published.model.vocab, loaded.origin.at("model.vocab"), ": model.vocab is ", vocab,
        ", must be at least ", published.model.vocab, ", the vocabulary of ", path);
  c.model = published.model;
  c.model.vocab = vocab;
  c.model.quantized = four_bit_layers(c.init_from, published.model);
}

InitialWeights open_initial_weights(const RunSetup& setup, const World& world, bool always) {
  const Config& c = setup.config;
  if (c.init_from.empty() || (!c.run.resume.empty() && !setup.has_adapters() && !always)) return {};
  if (setup.units.sync_initial_values && setup.data_rank(world.rank()) != 0) return {};
  Arena tables("tables", Device::cpu());  // never allocates
  ModelConfig base = setup.model;
  base.adapters.clear();
  base.quantized.clear();
  const int64_t vocab = read_published_config(c.init_from).vocab;
  InitialWeights initial;
  initial.weights = std::make_unique<PublishedWeights>(c.init_from, Model(base, tables), vocab);
  initial.lines = str("from      ", initial.weights->describe(),
                      setup.units.sync_initial_values ? ", read by rank 0 for all ranks" : "", '\n');
  if (base.vocab > vocab)
    initial.lines +=
        str("          the vocabulary grows from ", with_commas(vocab), " to ", with_commas(base.vocab),
            "; new rows are the mean of the existing ones",
            setup.has_adapters() && c.lora.save_modules.empty()
                ? " and stay so: to train them, name embed_tokens and lm_head in lora.save_modules"
                : "",
            '\n');
  if (c.adapter.empty()) return initial;
  base.vocab = vocab;
  initial.adapter = std::make_unique<AdapterFolder>(c.adapter, Model(base, tables));
  check(initial.adapter->vocab() == setup.model.vocab, c.adapter,
        ": the vocabulary of the model with this adapter is ", initial.adapter->vocab(), ", not ",
        setup.model.vocab, ": set model.vocab = ", initial.adapter->vocab());
  if (continues_adapter(c)) {
    for (const auto& [path, adapter] : setup.model.adapters) {
      const auto found = initial.adapter->adapters().find(path);
      check(found != initial.adapter->adapters().end() && found->second.rank == adapter.rank &&
                found->second.scale == adapter.scale,
            c.adapter, ": ", path, " has no adapter of rank ", adapter.rank, " and scale ", adapter.scale,
            ", which its ", kAdapterConfigName, " describes");
    }
    for (const auto& [path, adapter] : initial.adapter->adapters())
      check(setup.model.adapters.contains(path), c.adapter, ": has an adapter of ", path, ", which its ",
            kAdapterConfigName, " does not select: list the layer in target_modules");
    initial.lines += str("adapter   ", c.adapter, ", to continue\n");
  } else {
    check(c.model.quantized.empty(), c.init_from, " has 4-bit weights, into which ", c.adapter,
          " cannot be merged for a new adapter: merge it first, with ckpt merge-adapter, or continue it, "
          "without "
          "lora.rank");
    initial.lines += str("adapter   ", c.adapter,
                         ", merged into the frozen weights; the new adapter belongs on the model that ckpt "
                         "merge-adapter makes of the two\n");
  }
  check_base(c.adapter, c.init_from, advice_on(c.adapter));
  return initial;
}

std::string describe_initial_weights(const RunSetup& setup, const World& world) {
  const std::string& model = setup.config.init_from;
  const std::string stem = model + '/' + kWeightsStem + ".safetensors";
  std::error_code none;
  const bool there = model.empty() || is_gguf(model) || std::filesystem::exists(stem, none) ||
                     std::filesystem::exists(stem + ".index.json", none);
  if (there) return open_initial_weights(setup, world).lines;
  return str("from      ", published_config_path(model),
             "; its weights are not there: a run needs them, a plan does not\n");
}

InitialValues values_of_run(const RunSetup& setup, const InitialWeights& initial) {
  const InitialValues random = random_values(static_cast<uint64_t>(setup.config.run.seed));
  if (setup.config.init_from.empty()) return quantized_values(random, setup.model);
  const bool continues = continues_adapter(setup.config);
  PublishedWeights* const weights = initial.weights.get();
  const InitialValues read = values_read_by(
      [=, adapter = initial.adapter.get()](const std::string& name, int64_t first, int64_t count, float* to) {
        if (adapter && adapter->has(name))
          adapter->read(name, first, count, to);
        else
          weights->read(name, first, count, to);
        if (adapter && !continues) adapter->merge(name, first, count, to);
      });
  const InitialValues values = [=](Stream& stream, const ParamSpec& spec, int64_t first, const Tensor& y) {
    (spec.role == ParamRole::adapter && !continues ? random : read)(stream, spec, first, y);
  };
  if (setup.config.model.quantized.empty()) return quantized_values(values, setup.model);
  return with_parts(
      values, bytes_read_by([weights](const std::string& part, int64_t first, int64_t count, std::byte* to) {
        weights->read_bytes(part, first, count, to);
      }));
}

ModelDocuments model_documents(const RunSetup& setup, const std::string& checkpoint, const std::string& base,
                               const World& world) {
  const std::string& folder = checkpoint.empty() ? setup.config.init_from : checkpoint;
  ModelDocuments documents{
      .config_json = hf_config_json(setup.model, DType::f32,
                                    folder.empty() || is_gguf(folder) ? "" : published_config_path(folder)),
      .tokenizer_files = {}};
  if (setup.has_adapters()) {
    const bool merges = !setup.config.adapter.empty() && !continues_adapter(setup.config);
    const AdapterConfig adapter{.lora = setup.config.lora,
                                // PEFT has no name for a base with an adapter merged into it.
                                .base = merges ? "" : setup.config.init_from,
                                .fan_in_fan_out = param_names(setup.model.family).transposed_weights};
    documents.adapter_config_json = adapter_config_json(adapter, setup.model.adapters, setup.model.family);
    if (!adapter.base.empty() && !base.empty())
      documents.adapter_base_json =
          adapter_base_json({.folder = std::filesystem::absolute(adapter.base).lexically_normal().string(),
                             .weights = base,
                             .quant = setup.config.quant});
    if (!setup.config.init_from.empty())
      documents.vocab_has_grown = setup.model.vocab > read_published_config(setup.config.init_from).vocab;
  }
  const std::string& tokenizer = setup.config.data.tokenizer;
  if (world.rank() == 0)
    documents.tokenizer_files =
        read_tokenizer_files(checkpoint.empty() && !tokenizer.empty() ? tokenizer : folder);
  return documents;
}

}  // namespace flatshard
