#pragma once
// The description of a 4-bit weight in a file of bitsandbytes: a U8 tensor
// P.weight.quant_state.bitsandbytes__nf4 (or __fp4) with the UTF-8 text of a JSON object
//   {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [4096, 4096],
//    "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0421}
// on one line. Only nested weights have the last three members.

#include <string>
#include <string_view>

#include "model/quantized_part.h"
#include "runtime/dtype.h"

namespace flatshard {

// The part of the tensor's name between the weight's name and "nf4" or "fp4".
inline constexpr const char* kQuantStateInfix = ".quant_state.bitsandbytes__";

struct QuantState {
  FourBitWeight weight;       // format.compute is empty
  DType dtype = DType::bf16;  // dtype of the weight before quantization
  float nested_offset = 0;
};

// PyTorch's names: float32, bfloat16, float16 or uint8.
const char* torch_name_of(DType dtype);
std::optional<DType> dtype_of_torch_name(std::string_view name);

// The text, with numbers printed like Python: with as many digits as it takes to read them back.
std::string quant_state_json(const QuantState& state);

// Parses the text. An Error begins with `name`. Unknown, missing and duplicate members are Errors, as are
// types, block sizes, dtypes and shapes that four_bit.h lacks.
QuantState parse_quant_state(std::string_view text, const std::string& name);

}  // namespace flatshard
