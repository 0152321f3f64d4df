#pragma once
// The text of images in a rendering. A template prints a marker, such as <image>, for each image; the model
// reads the expansion of the marker (image_rules.h). A marker in data, such as a message of a user, is plain
// text.

#include <span>

#include "text/chat/chat_template.h"
#include "text/images/image_rules.h"

namespace flatshard {

// The number of markers that the template has printed.
size_t count_images(const Rendering& rendering, const ImageRules& rules);

// Replaces the markers by the expansions of the images, whose sizes must be known, and records their ranges.
// As in the processors of transformers, a text that touches an image of idefics2 begins with a space. Throws
// an Error if the rendering shows a different number of images.
Rendering with_image_text(const Rendering& rendering, std::span<const ShownImage> images,
                          const ImageRules& rules);

}  // namespace flatshard
