#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <ostream>

#include "checkpoint/float_values.h"
#include "runtime/mapped_file.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/ckpt/ckpt_commands.h"
#include "train/ckpt/tensor_sets.h"
#include "train/models/tokenizer_files.h"
#include "train/report/byte_progress.h"
#include "train/save/checkpoint_names.h"
#include "train/save/new_folder.h"
#include "train/save/shard_files.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// A tensor to write, and its source.
struct Item {
  const SafetensorsEntry* source;
  DType dtype;
  std::vector<int64_t> shape;
};
using Items = std::vector<std::pair<std::string, Item>>;  // by name, in the order of the files

DType dtype_of_item(const SafetensorsEntry& entry, const std::optional<DType>& wanted) {
  const std::optional<DType> own = float_dtype(entry);
  check(own.has_value(), "\"", printable(entry.name), "\" is ", entry.dtype,
        ", must be F32, BF16 or F16 to be exported");
  return wanted.value_or(*own);
}

// In model order, followed by tensors that are not of the model.
Items items_of(const TensorSets& sets, const std::optional<DType>& dtype) {
  Items items;
  std::map<std::string, const SafetensorsEntry*> rest = sets.sets().front().entries;
  const auto add = [&](const std::string& name, const SafetensorsEntry* entry) {
    items.emplace_back(name, Item{entry, dtype_of_item(*entry, dtype), entry->shape});
  };
  for (const SafetensorsSpec& spec : specs_of(sets.config()))
    if (const auto found = rest.find(spec.name); found != rest.end()) {
      add(spec.name, found->second);
      rest.erase(found);
    }
  for (const auto& [name, entry] : rest) add(name, entry);
  return items;
}

void check_whole(const TensorSets& sets) {
  const std::vector<std::string> problems = mismatches(sets);
  check(problems.empty(), problems.empty() ? "" : problems.front(),
        problems.size() > 1 ? str(" (and ", problems.size() - 1, " more; ckpt verify lists them)") : "");
}

// Reads elements [first, first + count) of an item, in its dtype.
using ReadItem = std::function<void(const std::string& name, const Item& item, int64_t first, int64_t count,
                                    std::vector<std::byte>& block)>;

void read_source(const std::string&, const Item& item, int64_t first, int64_t count,
                 std::vector<std::byte>& block) {
  read_as(*item.source, first, count, item.dtype, block);
}

int64_t write_weights(const NewFolder& folder, const char* stem, const Items& items, int64_t shard_bytes,
                      const Console& console, const ReadItem& read = read_source) {
  std::vector<SafetensorsSpec> specs;
  int64_t bytes = 0;
  for (const auto& [name, item] : items) {
    specs.push_back({.name = name, .dtype = item.dtype, .shape = item.shape});
    bytes += element_count(*item.source) * size_of(item.dtype);
  }
  const TensorFolderLayout layout(stem, std::move(specs), shard_bytes);
  TensorFolderWriter writer(folder.unfinished(), layout, true);
  ByteProgress progress(bytes, console.terminal);
  std::vector<std::byte> block;
  for (const auto& [name, item] : items) {
    const int64_t elements = element_count(*item.source);
    for (int64_t first = 0; first < elements; first += kValueBlock) {
      const int64_t count = std::min(kValueBlock, elements - first);
      read(name, item, first, count, block);
      writer.write(name, first, block.data(), count);
      progress.add(count * size_of(item.dtype));
    }
  }
  writer.finish();
  if (!layout.index_name().empty()) folder.write(layout.index_name(), layout.index_text());
  return layout.file_bytes();
}

// Writes the config.json of a folder, with changes, and the tokenizer files.
void write_documents(const NewFolder& folder, const fs::path& from, const HfConfigChanges& changes,
                     const TokenizerFiles& tokenizer_files) {
  const std::string config = (from / kConfigName).string();
  folder.write(kConfigName, changed_hf_config(read_whole_file(config, kMostHfConfigBytes), config, changes));
  for (const auto& [name, content] : tokenizer_files) folder.write(name, content);
}

// Renames the new folder to its final name.
void finish(NewFolder& folder, int64_t bytes, const ExportOptions& options, const Console& console) {
  folder.finish();
  console.out << "wrote " << options.to << ", " << human_bytes(bytes) << " of weights\n";
}

// The base's tensors, replaced by those of the checkpoint where it has them.
Items merged_items(const TensorSets& base, const TensorSets& checkpoint, const std::optional<DType>& dtype) {
  Items items = items_of(base, dtype);
  std::map<std::string, const SafetensorsEntry*> rest = checkpoint.sets().front().entries;
  for (auto& [name, item] : items) {
    const auto found = rest.find(name);
    if (found == rest.end()) continue;
    check(found->second->shape == item.shape, checkpoint.weights().path(), ": ", printable(name),
          " differs in shape from that in ", base.weights().path(),
          "; omit --base if the run extended the vocabulary");
    item.source = found->second;
    rest.erase(found);
  }
  check(rest.empty(), base.weights().path(), ": ", rest.empty() ? "" : printable(rest.begin()->first),
        " is missing; ", checkpoint.path(),
        " has it; check that --base is the model that the run started from");
  return items;
}

// The base's tensors, replaced by those that the adapter has in full.
Items adapted_items(const TensorSets& base, const AdapterFolder& adapter, const std::optional<DType>& dtype) {
  Items items = items_of(base, dtype);
  for (auto& [name, item] : items)
    if (adapter.has(name)) {
      item.source = &adapter.entry(name);
      item.shape = item.source->shape;
    }
  return items;
}

// The adapter's tokenizer files, if it has any, and the base's generation config unless there is another.
TokenizerFiles adapted_tokenizer_files(const ModelSource& source) {
  constexpr const char kGeneration[] = "generation_config.json";
  TokenizerFiles own = read_tokenizer_files(tokenizer_folder(source)),
                 base = read_tokenizer_files(source.folder);
  if (base.contains(kGeneration)) own.try_emplace(kGeneration, base[kGeneration]);
  return own;
}

TrainState state_to_compare(const fs::path& checkpoint) {
  try {
    return read_train_state((checkpoint / TrainState::kFileName).string());
  } catch (const Error& error) {
    throw Error(str(error.what(), "; it may be the best checkpoint: remove ", checkpoint.string(),
                    ", or export a checkpoint by its path"),
                error.where);
  }
}

}  // namespace

BestCheckpoint best_of(const std::string& run) {
  const std::vector<int64_t> steps = steps_in(run);
  check(!steps.empty(), run, ": has no checkpoint");
  std::optional<BestCheckpoint> best;
  for (const int64_t step : steps) {
    const fs::path path = fs::path(run) / name_of_step(step);
    const TrainState state = state_to_compare(path);
    if (state.eval_loss && std::isfinite(*state.eval_loss) && (!best || *state.eval_loss < best->loss))
      best = {.path = path.string(), .step = step, .loss = *state.eval_loss};
  }
  check(best.has_value(), run, ": none of its ", counted(std::ssize(steps), "checkpoint"),
        " has an evaluation loss; set data.eval and train.eval_every, or export a checkpoint by its path");
  return *best;
}

void export_model(const std::string& from, const ExportOptions& options, const Console& console) {
  const TensorSets source(from);
  check_whole(source);
  NewFolder folder(options.to);
  const int64_t bytes = write_weights(folder, source.has_adapters() ? kAdapterStem : kWeightsStem,
                                      items_of(source, options.dtype), options.shard_bytes, console);
  if (const fs::path adapter = source.folder() / kAdapterConfigName; source.has_adapters())
    folder.write(kAdapterConfigName, read_whole_file(adapter.string(), kMostHfConfigBytes));
  write_documents(folder, source.folder(), {.weights = options.dtype}, read_tokenizer_files(source.path()));
  finish(folder, bytes, options, console);
}

void merge(const std::string& run, const std::optional<std::string>& base, const ExportOptions& options,
           const Console& console) {
  const BestCheckpoint best = best_of(run);
  console.out << best.path << ": evaluation loss " << best.loss << ", the lowest of " << steps_in(run).size()
              << " checkpoints\n";
  check(verify(best.path, console), best.path, ": is damaged and cannot be merged");
  if (!base) return export_model(best.path, options, console);
  const TensorSets checkpoint(best.path), onto(*base);
  check(!onto.state(), *base, ": is a checkpoint, must be a model folder");
  check(!checkpoint.has_adapters(), best.path, ": has adapters: merge them with ckpt merge-adapter");
  NewFolder folder(options.to);
  const Items items = merged_items(onto, checkpoint, options.dtype);
  const int64_t bytes = write_weights(folder, kWeightsStem, items, options.shard_bytes, console);
  write_documents(folder, onto.folder(), {.weights = options.dtype}, read_tokenizer_files(onto.path()));
  finish(folder, bytes, options, console);
}

void merge_adapter(const ModelSource& source, const ExportOptions& options, const Console& console) {
  const TensorSets base(source.folder);
  check_whole(base);
  check(!base.has_adapters(), source.folder, ": is an adapter, must be a model folder");
  Arena tables("tables", Device::cpu());  // only counts
  AdapterFolder adapter(source.adapter, Model(base.config(), tables));
  for (const std::string& warning : adapter.warnings()) console.out << "warning: " << warning << '\n';
  NewFolder folder(options.to);
  const int64_t bytes = write_weights(
      folder, kWeightsStem, adapted_items(base, adapter, options.dtype), options.shard_bytes, console,
      [&, values = std::vector<float>()](const std::string& name, const Item& item, int64_t first,
                                         int64_t count, std::vector<std::byte>& block) mutable {
        if (!adapter.adapts(name)) return read_source(name, item, first, count, block);
        values.resize(static_cast<size_t>(count));
        read_floats(*item.source, first, count, values.data());
        adapter.merge(name, first, count, values.data());
        convert_floats(values, name, first, item.dtype, block);
      });
  HfConfigChanges changes{.weights = options.dtype};
  if (adapter.vocab() != base.config().vocab) changes.vocab = adapter.vocab();
  write_documents(folder, base.folder(), changes, adapted_tokenizer_files(source));
  finish(folder, bytes, options, console);
}

}  // namespace flatshard
