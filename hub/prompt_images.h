#pragma once
// The images of a prompt in the form that the model reads, and the positions that they give to the text's
// tokens.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hub/text_codec.h"
#include "model/image_rows.h"
#include "text/chat/prompt_file.h"
#include "text/images/image_input.h"

namespace flatshard {

// The images of a text, in the order of their tokens, as frames of patches (text/images/image_rules.h).
struct PromptImages {
  std::vector<float> patches;
  std::vector<int32_t> positions;  // positions of patches; with two axes, (2, patches) for each frame
  std::vector<int32_t> frames{0};  // index of each frame's first patch, and the end

  int64_t frame_count() const { return static_cast<int64_t>(frames.size()) - 1; }
  RowCounts rows_of(int64_t frame) const {
    const size_t i = static_cast<size_t>(frame);
    return {.tokens = 0, .patches = frames[i + 1] - frames[i], .frames = 1};
  }
};

// The number of frames that two texts have in common at the beginning.
int64_t common_frames(const PromptImages& a, const PromptImages& b);

// Decodes the images of a conversation and sets their sizes, on which its tokens depend. An Error begins with
// the name of an image.
void find_image_sizes(Conversation& conversation);

// A prompt as tokens, and its images, whose sizes are known.
struct TextPrompt {
  std::vector<int32_t> tokens;
  std::vector<ShownImage> images{};
};
// An Error begins with `record.where`.
TextPrompt encode_prompt(const TextCodec& codec, const PromptRecord& record);

// Decodes an image with these facts, cuts it into frames and appends the frames. An Error begins with `name`.
void append_image(const ImageInput& input, const std::string& name, const std::string& bytes,
                  const ImageFacts& facts, PromptImages& images);

// Reads all images of a conversation, whose sizes must be known.
PromptImages read_images(const ImageInput& input, std::span<const ShownImage> shown);

// A function that reads the images when a prompt begins; null without images. The input must outlive it.
std::function<PromptImages()> images_of(const std::optional<ImageInput>& input,
                                        const std::vector<ShownImage>& shown);

// The squares of all frames, for a model that rotates patches by row and column.
std::vector<SquareGrid> grids_of(const VisionConfig& vision, const PromptImages& images);

// The positions of a text's tokens in time, row and column. Tokens after the prompt have their index in the
// text, shifted because of the images.
class TextAxes {
 public:
  TextAxes() = default;  // a text without images
  TextAxes(const VisionConfig& vision, const PromptImages& images, std::span<const int32_t> prompt);

  int32_t position(int64_t axis, int64_t place) const {
    const int64_t known = std::ssize(positions_) / 3;
    return place < known ? positions_[static_cast<size_t>(axis * known + place)]
                         : static_cast<int32_t>(place + shift_);
  }

 private:
  std::vector<int32_t> positions_;  // (3, tokens of the prompt)
  int64_t shift_ = 0;
};

}  // namespace flatshard
