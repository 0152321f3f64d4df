#pragma once
// Models in GGUF files: how llama.cpp calls each family, its keys and its tensors, and in what form it has
// their values. Linear weights are (out, in). llama.cpp rotates neighbors (x[2i], x[2i + 1]) in some
// families, where the model rotates (x[i], x[i + D/2]), so the rows of q and k are in another order there.
// The weights of RMSNorm include the one that some families add to them.

#include <functional>
#include <string>
#include <vector>

#include "hub/gguf/gguf_file.h"
#include "hub/quantized/read_values.h"
#include "model/config.h"

namespace flatshard {

// A parameter of the model and the tensor that it is in the file.
struct GgufParameter {
  std::string parameter, name;
  std::vector<int64_t> shape;  // of the tensor
  int64_t interleaved = 0;     // rows of a head, if the file has the two halves of each interleaved
  bool transposed = false;     // the model has the transpose
  float added = 0;             // the tensor is the parameter plus this
  bool matrix() const { return shape.size() == 2; }

  // Which row of the model's matrix is this row of the file's, and the other way round.
  int64_t row_in_model(int64_t row) const;
  int64_t row_in_file(int64_t row) const;
};

// All tensors of a model, in model order. An Error if llama.cpp does not know the family.
std::vector<GgufParameter> gguf_parameters(const ModelConfig& config);

// Elements [first, first + count) of the tensor from the parameter's values, and the other way round. Fastest
// for whole rows.
void read_as_gguf(const GgufParameter& p, const ReadValues& parameter, int64_t first, int64_t count,
                  float* to);
void read_from_gguf(const GgufParameter& p, const GgufFile& file, int64_t first, int64_t count, float* to);

// llama.cpp's name of the family's architecture. An Error names a setting that it cannot express.
std::string gguf_architecture(const ModelConfig& config);
// Writes the keys that describe the model, and declares no tensors. Returns what the user should know.
std::vector<std::string> put_gguf_config(GgufWriter& out, const ModelConfig& config);
// The resolved config of the model in a file. An Error names key or tensor that is not supported, or lists
// tensors that are missing or unexpected.
ModelConfig read_gguf_config(const GgufFile& file);

}  // namespace flatshard
