#pragma once
// The classes of transformers that fsdp_transformer_layer_cls_to_wrap names, as a value of parallel.wrap.

#include <string>

namespace flatshard {

struct WrappedClasses {
  std::string wrap;     // block or attention_mlp
  std::string unknown;  // the names that no model here has, separated by commas
};

// `names` are separated by commas and may repeat. An Error that begins with `where` unless they name the
// blocks of a model, or its attention and its MLP.
WrappedClasses wrapped_classes(const std::string& names, const std::string& where);

}  // namespace flatshard
