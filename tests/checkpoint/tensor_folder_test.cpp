#include "checkpoint/tensor_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/range_bytes.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr char kFolder[] = "tensor_folder_test";
const std::string kIndex = std::string(kFolder) + "/model.safetensors.index.json";

// Tensors a, b, c ... of these sizes in bytes.
std::vector<SafetensorsSpec> tensors_of(const std::vector<int64_t>& sizes) {
  std::vector<SafetensorsSpec> specs;
  for (const int64_t size : sizes)
    specs.push_back({std::string(1, static_cast<char>('a' + specs.size())), DType::u8, {size}});
  return specs;
}

void write_file(const std::string& name, const std::string& text) {
  std::ofstream(str(kFolder, '/', name), std::ios::binary) << text;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Writes all of a layout; the bytes of a tensor are its name's letter.
void write_all(const TensorFolderLayout& layout, bool renew = true) {
  if (renew) fs::remove_all(kFolder);
  fs::create_directories(kFolder);
  TensorFolderWriter writer(kFolder, layout, true, nullptr, TensorFolderWriter::Names::unfinished);
  for (const SafetensorsSpec& spec : layout.specs())
    writer.write(spec.name, 0, std::string(static_cast<size_t>(spec.shape[0]), spec.name[0]).data(),
                 spec.shape[0]);
  writer.finish();
  finish_tensor_files(kFolder, "model", layout);
}

void check_reads(const std::vector<SafetensorsSpec>& specs, const std::vector<JoinedTensor>& joined = {}) {
  const TensorFolder folder(kFolder, "model", joined);
  CHECK(folder.entries().size() == specs.size());
  for (const SafetensorsSpec& spec : specs) {
    const SafetensorsEntry* const entry = folder.find(spec.name);
    REQUIRE(entry != nullptr);
    CHECK(entry->shape == spec.shape);
    for (const std::byte b : test::range_bytes(entry->bytes))
      CHECK(b == static_cast<std::byte>(spec.name[0]));
  }
  CHECK(folder.find("z") == nullptr);
}

std::vector<std::string> names_in_folder() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// The error for a folder with this index.
std::string error_of_index(const std::string& text) {
  write_file("model.safetensors.index.json", text);
  const std::string error = test::error_of([] { TensorFolder(kFolder, "model"); });
  return error.starts_with(kIndex + ": ") ? error.substr(kIndex.size() + 2) : error;
}

}  // namespace

TEST_CASE("tensors are split into files in order, and only a file of one tensor exceeds the limit") {
  const auto cut = [](const std::vector<int64_t>& sizes, int64_t most) {
    const TensorFolderLayout layout("model", tensors_of(sizes), most);
    std::string text;
    for (const auto& file : layout.files()) {
      text += '[';
      for (const SafetensorsSpec& spec : file.layout.specs()) text += spec.name;
      text += ']';
    }
    return text;
  };
  CHECK(cut({6, 6, 2, 6, 2, 2}, 10) == "[a][bc][def]");
  CHECK(cut({6, 4, 1}, 10) == "[ab][c]");
  CHECK(cut({2, 30, 2, 2}, 10) == "[a][b][cd]");
  CHECK(cut({30}, 10) == "[a]");
  CHECK(cut({}, 10) == "[]");
  CHECK(test::error_of([] {
          std::vector<SafetensorsSpec> specs;
          for (int i = 0; i < 301; ++i) specs.push_back({str(i), DType::f32, {5}});
          TensorFolderLayout("model", specs, 20);
        }) ==
        "model: splitting the tensors at 20 bytes makes 301 files, must be at most 300: raise the file size");
  CHECK(test::error_of([] {
          TensorFolderLayout("model", {{"a", DType::u8, {9}}, {"a", DType::u8, {9}}}, 10);
        }) == "safetensors: the name \"a\" appears twice");
}

TEST_CASE("several files and their index are written like Hugging Face's and round-trip") {
  const std::vector<SafetensorsSpec> specs = tensors_of({6, 6, 2, 6, 2, 2});
  const TensorFolderLayout layout("model", specs, 10);
  write_all(layout);
  CHECK(read_file(kIndex) == R"({
  "metadata": {
    "total_size": 24
  },
  "weight_map": {
    "a": "model-00001-of-00003.safetensors",
    "b": "model-00002-of-00003.safetensors",
    "c": "model-00002-of-00003.safetensors",
    "d": "model-00003-of-00003.safetensors",
    "e": "model-00003-of-00003.safetensors",
    "f": "model-00003-of-00003.safetensors"
  }
}
)");
  check_reads(specs);
  const TensorFolder folder(kFolder, "model");
  CHECK(folder.path() == kIndex);
  CHECK(folder.file_names() ==
        std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                 "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  int64_t bytes = 0;
  for (const auto& file : folder.files()) bytes += static_cast<int64_t>(fs::file_size(file->path()));
  CHECK(bytes == layout.file_bytes());
}

TEST_CASE("tensors that fit into one file have no index") {
  const std::vector<SafetensorsSpec> specs = tensors_of({6, 4});
  write_all({"model", specs, 10});
  CHECK(names_in_folder() == std::vector<std::string>{"model.safetensors"});
  check_reads(specs);
  CHECK(TensorFolder(kFolder, "model").file_names() == std::vector<std::string>{"model.safetensors"});
}

TEST_CASE("files of an earlier model that are not replaced are removed, and no others") {
  write_all({"model", tensors_of({8, 8, 8}), 10});
  write_file("model-of-mine.safetensors", "");
  write_file("model-1-of-2.safetensors", "");
  const TensorFolderLayout two("model", tensors_of({6, 7}), 10), one("model", tensors_of({5}), 10);
  write_all(two, false);
  check_reads(two.specs());
  CHECK(names_in_folder() == std::vector<std::string>{"model-00001-of-00002.safetensors",
                                                      "model-00002-of-00002.safetensors",
                                                      "model-1-of-2.safetensors", "model-of-mine.safetensors",
                                                      "model.safetensors.index.json"});
  write_all(one, false);
  check_reads(one.specs());
  CHECK(names_in_folder() == std::vector<std::string>{"model-1-of-2.safetensors", "model-of-mine.safetensors",
                                                      "model.safetensors"});
  write_all(two, false);
  check_reads(two.specs());
}

TEST_CASE("an index beside a single file is ignored") {
  const std::vector<SafetensorsSpec> specs = tensors_of({6, 4});
  write_all({"model", specs, 10});
  write_file("model.safetensors.index.json", "damaged");
  check_reads(specs);
}

TEST_CASE("an index that contradicts its files is refused with the reason") {
  write_all({"model", tensors_of({8, 8}), 10});
  const std::string one = "\"model-00001-of-00002.safetensors\"",
                    two = "\"model-00002-of-00002.safetensors\"";
  const auto maps = [](const std::string& text) { return "{\"weight_map\":{" + text + "}}"; };
  CHECK(error_of_index(maps("\"a\":" + one + ",\"b\":" + two)) == "");
  CHECK(error_of_index(maps("\"a\":" + one)) == "");
  for (const std::string name : {"../a.safetensors", "/a.safetensors", "x/a.safetensors", "", ".", "..",
                                 "a.bin", "a.safetensors\\u0000.safetensors"}) {
    CAPTURE(name);
    CHECK(error_of_index(maps("\"a\":\"" + name + "\""))
              .find("must be in a .safetensors file of this folder") != std::string::npos);
  }
  CHECK(error_of_index(maps("\"a\":\"no.safetensors\"")) ==
        str(kFolder, "/no.safetensors: cannot open: No such file or directory"));
  CHECK(error_of_index(maps("\"a\":" + one + ",\"c\":" + two)) ==
        "\"c\" is not in model-00002-of-00002.safetensors");
  CHECK(error_of_index(maps("\"a\":" + two + ",\"b\":" + one)) ==
        "\"a\" is not in model-00002-of-00002.safetensors");
  CHECK(error_of_index(maps("\"a\":" + one + ",\"a\":" + two)) == "invalid JSON: \"a\" appears twice");
  fs::copy_file(str(kFolder, "/model-00001-of-00002.safetensors"), str(kFolder, "/copy.safetensors"));
  CHECK(error_of_index(maps("\"a\":" + one + ",\"b\":\"copy.safetensors\"")) ==
        "\"a\" is in both copy.safetensors and model-00001-of-00002.safetensors");
}

TEST_CASE("a malformed index is refused with the expected form") {
  write_all({"model", tensors_of({8, 8}), 10});
  const std::string good = read_file(kIndex);
  const auto with_size = [&](const std::string& size) {
    std::string text = good;
    return text.replace(text.find("16"), 2, size);
  };
  CHECK(error_of_index(with_size("16")) == "");
  CHECK(error_of_index(with_size("16.0")) == "");
  CHECK(error_of_index(with_size("17")) == "total_size is 17, but the tensors have 16 bytes");
  for (const char* size : {"-16", "16.5", "\"16\"", "1e400", "18446744073709551616"}) {
    CAPTURE(size);
    CHECK(error_of_index(with_size(size)).starts_with("invalid JSON: "));
  }
  CHECK(error_of_index("").starts_with("invalid JSON: "));
  CHECK(error_of_index("\xff") == "invalid JSON: not UTF-8 at byte 0");
  CHECK(error_of_index(good.substr(0, good.size() / 2)).starts_with("invalid JSON: "));
  for (const char* text : {"[]", "{}", "{\"weight_map\":[]}"})
    CHECK(error_of_index(text) == "invalid JSON: must be an object whose member weight_map is an object");
  CHECK(error_of_index("{\"weight_map\":{\"a\":1}}") ==
        "invalid JSON: weight_map: \"a\" must be mapped to a file name");
  CHECK(error_of_index("{\"weight_map\":{},\"metadata\":1}") == "invalid JSON: metadata must be an object");
  CHECK(error_of_index(std::string(100, '[')) == "invalid JSON: nested more than 32 levels deep");
  fs::remove_all(kFolder);
  fs::create_directories(kFolder);
  CHECK(test::error_of([] { TensorFolder(kFolder, "model"); }) ==
        str(kFolder, "/model.safetensors: cannot open: No such file or directory"));
}

TEST_CASE("parts of a joined tensor are written into it and read from it, or from tensors of their own") {
  const std::vector<SafetensorsSpec> specs = tensors_of({4, 2, 2, 6});
  const std::vector<JoinedTensor> joined{{"whole", {2, 4}, {{"b", {2}}, {"d", {6}}}}};
  write_all(TensorFolderLayout("model", specs, 100, joined));
  const TensorFolder whole(kFolder, "model");
  REQUIRE(whole.entries().size() == 3);
  CHECK(whole.find("whole")->shape == std::vector<int64_t>{2, 4});
  std::string text;
  for (const std::byte b : test::range_bytes(whole.find("whole")->bytes)) text += static_cast<char>(b);
  CHECK(text == "bbdddddd");
  check_reads(specs, joined);

  const std::vector<JoinedTensor> other{{"whole", {8}, {{"b", {2}}, {"d", {6}}}}};
  CHECK(TensorFolder(kFolder, "model", other).find("whole") != nullptr);
  const std::vector<JoinedTensor> twice{{"whole", {2, 4}, {{"a", {2}}, {"d", {6}}}}};
  CHECK(test::error_of([&] { TensorFolder(kFolder, "model", twice); }) ==
        str(kFolder, "/model.safetensors: has both \"whole\" and \"a\", which is a part of it"));

  write_all(TensorFolderLayout("model", specs, 100));
  check_reads(specs, joined);
}

TEST_CASE("a joined tensor is not divided among files") {
  const TensorFolderLayout layout("model", tensors_of({4, 2, 2, 6}), 6,
                                  {{"whole", {8}, {{"b", {2}}, {"d", {6}}}}});
  REQUIRE(layout.files().size() == 3);
  CHECK(layout.place("b").file == layout.place("d").file);
  CHECK(layout.place("d").first == 2);
  CHECK(layout.place("c").file == 2);
}

TEST_CASE(
    "a writer that does not finish leaves no file of an unfinished name, even where it cannot create them "
    "all") {
  fs::remove_all(kFolder);
  fs::create_directories(kFolder);
  const TensorFolderLayout layout(
      "model",
      {{.name = "a", .dtype = DType::u8, .shape = {8}}, {.name = "b", .dtype = DType::u8, .shape = {8}}}, 8);
  { TensorFolderWriter(kFolder, layout, true, nullptr, TensorFolderWriter::Names::unfinished); }
  CHECK(fs::is_empty(kFolder));
  const std::string second = std::string(kFolder) + "/" + layout.files()[1].name + ".tmp";
  fs::create_directories(second + "/in the way");
  test::error_of(
      [&] { TensorFolderWriter(kFolder, layout, true, nullptr, TensorFolderWriter::Names::unfinished); });
  CHECK(std::distance(fs::directory_iterator(kFolder), {}) == 1);
}
