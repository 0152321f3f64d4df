#include "hub/resident_model.h"

namespace flatshard {

ResidentModel::ResidentModel(const ModelConfig& config, DType dtype, Stream& stream)
    : dtype_(dtype), memory_("model", stream.device()), model_(config, memory_) {
  allocate_parameters(model_, dtype, memory_);
  memory_.commit();
  model_ = Model(config, memory_);  // repeats the same calls, now with memory
  parameters_ = allocate_parameters(model_, dtype, memory_);
  model_.fill_tables(stream);
}

}  // namespace flatshard
