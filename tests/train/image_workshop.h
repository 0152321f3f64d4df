#pragma once
// Folders in which tests train models that read images.

#include <string>

#include "model/config.h"
#include "tests/workshop.h"
#include "text/images/image_input.h"

namespace flatshard::test {

// How workshop_with_images() shows images to a model of this family.
ImageInput input_of(const std::string& family);

// A model of this family, whose text has the sizes of the workshop's config.
ModelConfig model_for_workshop(const std::string& family, int64_t vocab = Workshop::kVocab);

// The same, which reads the images of input_of(); the vocabulary has 100 tokens.
ModelConfig model_for_images(const std::string& family);

// A token file for it, in whose documents there are two images of different sizes, one and none.
void write_documents_with_images(const std::string& path, const std::string& family);

// Writes a model whose tokenizer, chat template and rules of images are those of tests/golden/image_folders.
// Its text has the sizes of the workshop's config, but for the vocabulary, which is returned.
int64_t write_seeing_model(const std::string& folder, const std::string& family);

// A workshop with a folder "model".
Workshop workshop_with(const std::string& folder, const ModelConfig& c);

// With model_for_images(), and images.tok of write_documents_with_images().
Workshop workshop_with_images(const std::string& folder, const std::string& family);

}  // namespace flatshard::test
