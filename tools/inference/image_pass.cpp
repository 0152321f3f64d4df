#include "tools/inference/image_pass.h"

#include "runtime/memory.h"

namespace flatshard {

void ImagePass::allocate(Arena& memory, Arena& host) {
  const Model& model = weights_.model();
  inputs_ = FrameInputs(vision(), tokens_, memory, host);
  const Shape largest = model.largest_output(0, model.embedding_layer(), inputs_.rows());
  x_ = memory.alloc(dtype_, largest);
  y_ = memory.alloc(dtype_, largest);
}

void ImagePass::run(Stream& stream, const PromptImages& images, int64_t frame, const Tensor& rows,
                    Arena& scratch, Arena& saved) {
  inputs_.write(images, frame);
  copy(stream, rows, forward(stream, scratch, saved).beginning(rows.shape));
  stream.sync();
}

Tensor ImagePass::forward(Stream& stream, Arena& scratch, Arena& saved) {
  inputs_.upload(stream);
  LayerCall c{.stream = stream,
              .scratch = scratch,
              .saved = saved,
              .tokens = {},
              .positions = {},
              .boundaries = {},
              .targets = {},
              .target_weights = {},
              .losses = {},
              .images = inputs_.on_device(),
              .dtype = dtype_};
  return weights_.forward(c, {.first = 0,
                              .end = weights_.model().embedding_layer(),
                              .next = kNoLayer,
                              .rows = inputs_.rows(),
                              .input = {},
                              .buffers = {x_, y_}});
}

}  // namespace flatshard
