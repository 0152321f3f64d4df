#pragma once
// The text of images in a rendering. A template prints a marker, such as <image>, for each; the model reads
// the expansion of it (image_rules.h). A marker in data, such as a message of a user, is text.

#include <span>

#include "text/chat/chat_template.h"
#include "text/images/image_rules.h"

namespace flatshard {

// How many markers the template has printed.
size_t count_images(const Rendering& rendering, const ImageRules& rules);

// With the expansions of the images, whose sizes are known, and where they are. As the processors of
// transformers write it, a text that touches an image of idefics2 begins with a space. An Error if the
// rendering shows another number of images.
Rendering with_image_text(const Rendering& rendering, std::span<const ShownImage> images,
                          const ImageRules& rules);

}  // namespace flatshard
