#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <ostream>

#include "checkpoint/float_values.h"
#include "hub/gguf/gguf_model.h"
#include "hub/gguf/gguf_rope.h"
#include "hub/gguf/gguf_tokenizer.h"
#include "hub/text_codec.h"
#include "model/names.h"
#include "runtime/byte_progress.h"
#include "runtime/parallel.h"
#include "runtime/text.h"
#include "tools/ckpt/model_output.h"
#include "tools/ckpt/modelfile.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// llama.cpp's number for the type of most tensors of a file.
int64_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::f16:
      return 1;
    case GgmlType::q8_0:
      return 7;
    case GgmlType::q4_k:
      return 14;
    case GgmlType::q6_k:
      return 18;
    case GgmlType::bf16:
      return 32;
    default:
      return 0;
  }
}

bool is_quantized(GgmlType type) { return block_values(type) > 1; }

// Norms, biases, routers and learned positions stay fp32. The row of a quantized matrix is a whole number of
// blocks; otherwise the matrix gets a type with blocks that fit. Embedding and head get six bits if other
// matrices get four.
GgmlType type_of(const GgufParameter& p, bool is_head, GgmlType wanted) {
  const bool routes = p.name.find(".ffn_gate_inp") != std::string::npos;
  const bool stays = routes || p.name.ends_with(".bias") || p.name == "position_embd.weight";
  if (!p.matrix() || stays) return GgmlType::f32;
  const int64_t row = p.shape.back();
  if (wanted == GgmlType::q4_k && is_head) wanted = GgmlType::q6_k;
  if (row % block_values(wanted) == 0) return wanted;
  return row % block_values(GgmlType::q8_0) == 0 ? GgmlType::q8_0 : GgmlType::f16;
}

struct GgufTensorOutput {
  std::string name;
  GgmlType type;
  std::vector<int64_t> shape;
  ReadMatrix read;

  int64_t values() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
  }
};

// Rounds values to blocks on all threads.
void encode(const GgufTensorOutput& tensor, int64_t first, std::span<const float> values,
            std::vector<std::byte>& blocks) {
  const std::optional<int64_t> wrong = first_non_finite(values);
  check(!wrong, tensor.name, ": element ", first + wrong.value_or(0), " is not finite");
  blocks.resize(static_cast<size_t>(ggml_bytes(tensor.type, std::ssize(values))));
  std::atomic<bool> fits = true;
  constexpr int64_t kPiece = 16384;  // a multiple of every block
  parallel_blocks(std::ssize(values), kPiece, [&](int64_t begin, int64_t end) {
    const auto piece = values.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    if (!encode_ggml(tensor.type, piece, blocks.data() + ggml_bytes(tensor.type, begin))) fits = false;
  });
  check(fits.load(), tensor.name, ": has values that are too large for ", tensor.type,
        ": export with --type bf16 or f32");
}

int64_t write_gguf(GgufWriter& out, const std::string& path, const std::vector<GgufTensorOutput>& tensors,
                   const Console& console) {
  for (const GgufTensorOutput& tensor : tensors) out.add_tensor(tensor.name, tensor.type, tensor.shape);
  out.begin(path);
  ByteProgress progress(out.tensor_bytes(), console.terminal);
  std::vector<float> values;
  std::vector<std::byte> blocks;
  for (const GgufTensorOutput& tensor : tensors)
    for (int64_t first = 0, n = tensor.values(); first < n;) {
      const int64_t count = std::min(kValueBlock, n - first);
      values.resize(static_cast<size_t>(count));
      tensor.read(first, count, values.data());
      encode(tensor, first, values, blocks);
      out.write(blocks);
      progress.add(std::ssize(blocks));
      first += count;
    }
  out.finish();
  return out.tensor_bytes();
}

void put_general(GgufWriter& out, const std::string& architecture, const char* type, const fs::path& to,
                 GgmlType values) {
  out.put("general.architecture", architecture);
  out.put("general.type", type);
  out.put("general.name", to.stem().string());
  out.put_size("general.file_type", file_type(values));
  if (is_quantized(values)) out.put_size("general.quantization_version", 2);
}

void say(const std::vector<std::string>& notes, const Console& console) {
  for (const std::string& note : notes) console.out << "note: " << note << '\n';
}

// A tensor from its parts, which are equally long and in order. Each has the shape of the whole tensor.
GgufTensorOutput joined(const std::vector<GgufTensorOutput>& parts) {
  GgufTensorOutput all = parts.front();
  const int64_t size = all.values() / std::ssize(parts);
  all.read = [parts, size](int64_t first, int64_t count, float* to) {
    while (count > 0) {
      const int64_t n = std::min(count, size - first % size);
      parts[static_cast<size_t>(first / size)].read(first % size, n, to);
      first += n;
      count -= n;
      to += n;
    }
  };
  return all;
}

// One output for each tensor, in the order of their first parts: those of all experts of a block are one.
std::vector<GgufTensorOutput> joined_by_name(const std::vector<GgufTensorOutput>& parts) {
  std::vector<std::vector<GgufTensorOutput>> tensors;
  std::map<std::string, size_t> places;
  for (const GgufTensorOutput& part : parts) {
    const auto [place, is_new] = places.try_emplace(part.name, tensors.size());
    if (is_new) tensors.emplace_back();
    tensors[place->second].push_back(part);
  }
  std::vector<GgufTensorOutput> outputs;
  for (const std::vector<GgufTensorOutput>& of_tensor : tensors) outputs.push_back(joined(of_tensor));
  return outputs;
}

std::vector<GgufTensorOutput> model_outputs(const ModelConfig& config, PublishedWeights& weights,
                                            GgmlType type) {
  const std::vector<GgufParameter> parameters = gguf_parameters(config);
  const bool has_head = std::any_of(parameters.begin(), parameters.end(),
                                    [](const GgufParameter& p) { return p.name == "output.weight"; });
  const std::string head = has_head ? "output.weight" : "token_embd.weight";
  const ReadValues read = reader_of(weights);
  std::vector<GgufTensorOutput> outputs;
  for (const GgufParameter& p : parameters)
    outputs.push_back(
        {p.name, type_of(p, p.name == head, type), p.shape_of_tensor(),
         [p, read](int64_t first, int64_t count, float* to) { read_as_gguf(p, read, first, count, to); }});
  for (const GgufRopeTensor& rope : gguf_rope_tensors(config))
    outputs.push_back({rope.name,
                       GgmlType::f32,
                       {std::ssize(rope.divisors)},
                       [divisors = rope.divisors](int64_t first, int64_t count, float* to) {
                         std::copy_n(divisors.begin() + first, count, to);
                       }});
  return joined_by_name(outputs);
}

// The rows of one of two kinds, which are in turn: those of gate or of up.
ReadValues every_other_row(const ReadValues& read, int64_t width, int64_t turn) {
  return [=](const std::string& name, int64_t first, int64_t count, float* to) {
    for (const int64_t end = first + count; first < end;) {
      const int64_t row = first / width, column = first % width, n = std::min(end - first, width - column);
      read(name, (2 * row + turn) * width + column, n, to);
      first += n;
      to += n;
    }
  };
}

// The factors of every layer. An adapter file has only one alpha, from which llama.cpp computes the scale of
// each layer, alpha / rank. If a layer has another scale, b is multiplied by the rest.
std::vector<GgufTensorOutput> adapter_outputs(const ModelConfig& config, const AdapterFolder& adapter,
                                              GgmlType type) {
  const double alpha = adapter.config().lora.alpha;
  std::vector<GgufTensorOutput> outputs;
  for (const GgufParameter& p : gguf_parameters(config)) {
    const std::string layer = p.parameter.substr(0, p.parameter.rfind('.'));
    const auto found = adapter.adapters().find(adapted_layer(layer));
    if (found == adapter.adapters().end() || !p.matrix()) continue;
    const int64_t rank = found->second.rank;
    const auto rest =
        static_cast<float>(static_cast<double>(found->second.scale) * static_cast<double>(rank) / alpha);
    const ReadValues read = [&adapter](const std::string& name, int64_t first, int64_t count, float* to) {
      adapter.read(name, first, count, to);
    };
    check(!p.is_row, adapter.folder(), ": ", layer, " has an adapter, but llama.cpp has none for ", p.name,
          ": run ckpt merge-adapter, then export the result");
    GgufParameter a = p, b = p;
    a.parameter = layer + ".lora_A.weight";
    a.name = p.name + ".lora_a";
    a.shape = {rank, p.shape[1]};
    a.interleaved = 0;
    b.parameter = layer + ".lora_B.weight";
    b.name = p.name + ".lora_b";
    b.shape = {p.shape[0], rank};
    a.transposed = b.transposed = false;
    a.turn = b.turn = -1;
    outputs.push_back({a.name, type, a.shape_of_tensor(), [a, read](int64_t first, int64_t count, float* to) {
                         read_as_gguf(a, read, first, count, to);
                       }});
    const ReadValues read_b = p.turn < 0 ? read : every_other_row(read, rank, p.turn);
    outputs.push_back(
        {b.name, type, b.shape_of_tensor(), [b, read_b, rest](int64_t first, int64_t count, float* to) {
           read_as_gguf(b, read_b, first, count, to);
           for (int64_t i = 0; i < count; ++i) to[i] *= rest;
         }});
  }
  return joined_by_name(outputs);
}

void finish_gguf(const GgufOptions& options, int64_t bytes, const Console& console) {
  console.out << "wrote " << options.to << ", " << human_bytes(bytes) << " of weights\n";
}

void write_modelfile(const GgufOptions& options, const Modelfile& modelfile, const Console& console) {
  if (!options.modelfile) return;
  const fs::path path = fs::path(options.to).parent_path() / "Modelfile";
  write_whole_file(path.string(), modelfile.text());
  console.out << "wrote " << path.string() << ": ollama create NAME -f " << path.string() << '\n';
  if (!modelfile.has_template && modelfile.chat_template)
    console.out
        << "note: the chat template is more than Ollama's templates can say: Ollama takes that of the "
           "GGUF file if it knows it; else add a TEMPLATE to the Modelfile\n";
}

void export_adapter(const TensorSets& sets, const GgufOptions& options, const Console& console) {
  check(!is_quantized(options.type), "--type is ", options.type, ", must be f32, f16 or bf16 for an adapter");
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  const AdapterFolder adapter(sets.path(), Model(sets.config(), tables));
  check(adapter.replaced().empty(), sets.path(), ": replaces ",
        adapter.replaced().empty() ? "" : adapter.replaced().front(),
        " in full, which an adapter of llama.cpp cannot: run ckpt merge-adapter, then export the result");
  GgufWriter out;
  put_general(out, gguf_architecture(sets.config()), "adapter", options.to, options.type);
  out.put("adapter.type", "lora");
  out.put("adapter.lora.alpha", adapter.config().lora.alpha);
  finish_gguf(options,
              write_gguf(out, options.to, adapter_outputs(sets.config(), adapter, options.type), console),
              console);
  Modelfile modelfile;
  modelfile.adapter = fs::path(options.to).filename().string();
  write_modelfile(options, modelfile, console);
}

}  // namespace

void export_gguf(const std::string& from, const GgufOptions& options, const Console& console) {
  const TensorSets sets(from);
  check_whole(sets);
  if (sets.has_adapters()) return export_adapter(sets, options, console);
  const ModelConfig& config = sets.config();
  const TextCodec codec(ModelSource(sets.path()), config.vocab);
  GgufWriter out;
  put_general(out, gguf_architecture(config), "model", options.to, options.type);
  say(put_gguf_config(out, config), console);
  GgufTokenizerSource tokenizer{.folder = codec.has_tokenizer() ? codec.folder() : "",
                                .vocab = config.vocab,
                                .ends = codec.end_tokens(),
                                .pattern = options.pattern};
  if (codec.has_chat_template()) tokenizer.chat_template = codec.chat_template().source();
  say(put_gguf_tokenizer(out, tokenizer), console);
  const std::unique_ptr<PublishedWeights> weights = weights_of(sets);
  finish_gguf(options, write_gguf(out, options.to, model_outputs(config, *weights, options.type), console),
              console);
  write_modelfile(options, modelfile_of(codec, config, fs::path(options.to).filename().string()), console);
}

}  // namespace flatshard
