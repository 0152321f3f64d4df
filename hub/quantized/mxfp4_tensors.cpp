#include "hub/quantized/mxfp4_tensors.h"

#include <algorithm>

#include "hub/quantized/mxfp4.h"
#include "hub/quantized/read_values.h"
#include "model/names.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr char kBlocks[] = "_blocks", kScales[] = "_scales";
constexpr int64_t kBlock = 32, kBlockBytes = kBlock / 2;

}  // namespace

Mxfp4Tensors::Mxfp4Tensors(const std::string& path, const TensorEntries& entries, const ModelConfig& config) {
  const ParamNames& names = param_names(config.family);
  if (!names.interleaved_experts()) return;
  const int64_t E = config.experts;
  const auto tensor = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = entries.find(name);
    check(found != entries.end(), path, ": ", name, " is missing: download all files of the folder again");
    const SafetensorsEntry& entry = *found->second;
    check(entry.dtype == "U8" && entry.shape == shape, path, ": ", name, " is ", entry.dtype, ' ',
          in_brackets(entry.shape), ", must be U8 ", in_brackets(shape));
    names_.push_back(name);
    return found->second;
  };
  const auto add = [&](const std::string& block, const std::string& all, const std::string& each, int64_t in,
                       int64_t out) {
    if (!entries.contains(block + all + kBlocks)) return;
    check(in % kBlock == 0, path, ": ", block, all, kBlocks, ": ", in,
          " values a row, must be a multiple of ", kBlock);
    const SafetensorsEntry* const blocks = tensor(block + all + kBlocks, {E, out, in / kBlock, kBlockBytes});
    const SafetensorsEntry* const scales = tensor(block + all + kScales, {E, out, in / kBlock});
    for (int64_t e = 0; e < E; ++e)
      parts_[block + of_expert(each, e) + ".weight"] = {blocks, scales, e, in, out};
  };
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string block = block_prefix(names, i);
    add(block, names.all_gate_up, names.expert_gate_up, config.hidden, 2 * config.expert_ffn);
    add(block, names.all_down, names.expert_down, config.expert_ffn, config.hidden);
  }
}

std::vector<int64_t> Mxfp4Tensors::shape_of(const std::string& parameter) const {
  const Part& part = parts_.at(parameter);
  return {part.in, part.out};
}

// Elements of the part as it is stored, (out, in), in whole rows.
void Mxfp4Tensors::read_rows(const Part& part, int64_t first, int64_t count, float* to) const {
  const int64_t blocks = count / kBlock, begin = (part.expert * part.out * part.in + first) / kBlock;
  std::vector<uint8_t> codes(static_cast<size_t>(blocks * kBlockBytes)), scales(static_cast<size_t>(blocks));
  part.blocks->bytes.read(begin * kBlockBytes, blocks * kBlockBytes, codes.data());
  part.scales->bytes.read(begin, blocks, scales.data());
  for (int64_t b = 0; b < blocks; ++b) {
    const float scale = mxfp4_scale(scales[static_cast<size_t>(b)]);
    const uint8_t* const code = codes.data() + b * kBlockBytes;
    for (int64_t i = 0; i < kBlockBytes; ++i) {
      *to++ = kMxfp4Values[code[i] & 15] * scale;
      *to++ = kMxfp4Values[code[i] >> 4] * scale;
    }
  }
}

void Mxfp4Tensors::read(const std::string& parameter, int64_t first, int64_t count, float* to) {
  const Part& part = parts_.at(parameter);
  if (current_ != parameter) {
    current_.clear();
    values_.resize(static_cast<size_t>(part.in * part.out));
    const auto rows = [&](int64_t at, int64_t n, float* values) { read_rows(part, at, n, values); };
    read_transposed(rows, part.out, part.in, 0, part.in * part.out, values_.data());
    current_ = parameter;
  }
  std::copy_n(values_.begin() + first, count, to);
}

}  // namespace flatshard
