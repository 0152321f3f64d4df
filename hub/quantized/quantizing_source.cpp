#include "hub/quantized/quantizing_source.h"

#include <algorithm>

#include "checkpoint/float_values.h"
#include "kernels/dynamic_table.h"

namespace flatshard {
namespace {

// Copies bytes [first, first + count) of the values.
template <class Values>
void copy_bytes(const Values& values, int64_t first, int64_t count, std::byte* to) {
  std::copy_n(reinterpret_cast<const std::byte*>(std::data(values)) + first, count, to);
}

}  // namespace

QuantizingSource::QuantizingSource(ReadValues read, FourBitWeights weights, bool transposed)
    : read_(std::move(read)),
      weights_(std::move(weights)),
      transposed_(transposed),
      streams_(Device::cpu()),
      stream_(streams_.add("quantize")),
      current_{.weight = weights_.end()} {}

// Reads elements [first, first + count) of the (out, in) matrix.
void QuantizingSource::read_values(int64_t first, int64_t count) {
  const auto& [name, weight] = *current_.weight;
  values_.resize(static_cast<size_t>(count));
  if (transposed_)
    read_transposed([&](int64_t at, int64_t n, float* to) { read_(name, at, n, to); }, weight.in, weight.out,
                    first, count, values_.data());
  else
    read_(name, first, count, values_.data());
  const std::optional<int64_t> wrong = first_non_finite(values_);
  const int64_t at = first + wrong.value_or(0);
  check(!wrong, name, ": row ", at / weight.in, ", column ", at % weight.in, " of its ", weight.out, " x ",
        weight.in, " matrix is ", wrong ? values_[static_cast<size_t>(*wrong)] : 0.0f,
        ", must be finite to be quantized");
}

void QuantizingSource::quantize(int64_t first_block, int64_t blocks) {
  const FourBitWeight& weight = current_.weight->second;
  const int64_t block = weight.format.block, first = first_block * block,
                count = std::min(blocks * block, weight.elements() - first);
  read_values(first, count);
  codes_.resize(static_cast<size_t>(code_bytes(count)));
  absmax_.resize(static_cast<size_t>(blocks));
  quantize_four_bit(stream_, {.codes = tensor_of(codes_.data(), {std::ssize(codes_)}),
                              .absmax = tensor_of(absmax_.data(), {blocks}),
                              .x = tensor_of(values_.data(), {count}),
                              .kind = weight.format.kind,
                              .block = block});
  keep_absmax(first_block);
}

// Appends the absmax of the last quantized blocks to the kept ones. After a gap, replaces the kept ones.
void QuantizingSource::keep_absmax(int64_t first_block) {
  std::vector<float>& kept = current_.absmax;
  const int64_t end = current_.first_block + std::ssize(kept);
  if (first_block < current_.first_block || first_block > end) {
    current_.first_block = first_block;
    kept = absmax_;
  } else if (first_block + std::ssize(absmax_) > end) {
    kept.insert(kept.end(), absmax_.begin() + (end - first_block), absmax_.end());
  }
}

void QuantizingSource::need_absmax(int64_t first_block, int64_t end_block) {
  const auto kept_end = [&] { return current_.first_block + std::ssize(current_.absmax); };
  const bool extends = first_block >= current_.first_block && first_block <= kept_end();
  const int64_t step = kValueBlock / current_.weight->second.format.block;
  for (int64_t at = extends ? kept_end() : first_block; at < end_block; at += step)
    quantize(at, std::min(step, end_block - at));
}

void QuantizingSource::need_nested() {
  if (!current_.scale_codes.empty()) return;
  const FourBitWeight& weight = current_.weight->second;
  const int64_t blocks = weight.blocks(), groups = block_count(blocks, kNestedBlock);
  need_absmax(0, blocks);
  current_.scale_codes.resize(static_cast<size_t>(blocks));
  current_.nested_absmax.resize(static_cast<size_t>(groups));
  quantize_scales(stream_, {.codes = tensor_of(current_.scale_codes.data(), {blocks}),
                            .nested_absmax = tensor_of(current_.nested_absmax.data(), {groups}),
                            .nested_offset = tensor_of(&current_.nested_offset, {1}),
                            .absmax = tensor_of(current_.absmax.data(), {blocks})});
}

void QuantizingSource::read_codes(int64_t first, int64_t count, std::byte* to) {
  const int64_t block_bytes = current_.weight->second.format.block / 2;
  const int64_t step = kValueBlock / 2, end = first + count;
  while (first < end) {
    const int64_t first_block = first / block_bytes, offset = first - first_block * block_bytes;
    const int64_t bytes = std::min(end - first, step - offset);
    quantize(first_block, block_count(offset + bytes, block_bytes));
    copy_bytes(codes_, offset, bytes, to);
    first += bytes;
    to += bytes;
  }
}

void QuantizingSource::read_bytes(const std::string& part, int64_t first, int64_t count, std::byte* to) {
  const std::optional<PartOfWeight> found = find_part(weights_, part);
  check(found.has_value(), part, ": not a part of a quantized weight");
  const FourBitWeight& weight = found->weight->second;
  const int64_t size = elements_of_part(weight, found->part) * size_of(dtype_of_part(weight, found->part));
  check(first >= 0 && count >= 0 && first <= size && count <= size - first, part, ": ", count, " bytes from ",
        first, " exceed its ", size);
  if (found->weight != current_.weight) current_ = {.weight = found->weight};
  switch (found->part) {
    case QuantizedPart::codes:
      return read_codes(first, count, to);
    case QuantizedPart::table:
      return copy_bytes(four_bit_table(weight.format.kind), first, count, to);
    case QuantizedPart::nested_table:
      return copy_bytes(dynamic_table(true), first, count, to);
    case QuantizedPart::nested_absmax:
      need_nested();
      return copy_bytes(current_.nested_absmax, first, count, to);
    case QuantizedPart::nested_offset:
      need_nested();
      return copy_bytes(std::span(&current_.nested_offset, 1), first, count, to);
    case QuantizedPart::absmax: {
      if (weight.format.nested) {
        need_nested();
        return copy_bytes(current_.scale_codes, first, count, to);
      }
      const int64_t first_block = first / int64_t{sizeof(float)};
      need_absmax(first_block, block_count(first + count, sizeof(float)));
      return copy_bytes(current_.absmax, first - current_.first_block * int64_t{sizeof(float)}, count, to);
    }
  }
}

}  // namespace flatshard
