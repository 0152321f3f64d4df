#include <algorithm>
#include <array>
#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/type_traits.h>
#include <arrow/visit_array_inline.h>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <parquet/arrow/reader.h>

#include "runtime/base64.h"
#include "runtime/check.h"
#include "runtime/dtype.h"
#include "runtime/text.h"
#include "text/input/table_input.h"
#include "text/input/text_input.h"

namespace flatshard {
namespace {

using arrow::Array;
using arrow::DataType;
using arrow::RecordBatch;
using arrow::Type;

// The most memory that Arrow may allocate: more than any record needs, and a bound for files that expand.
constexpr int64_t kMostMemory = int64_t{4} << 30;
// The limits of a Parquet batch, whose rows are decoded together.
constexpr int64_t kMostRows = 64, kBatchBytes = int64_t{16} << 20;
constexpr int64_t kBufferBytes = int64_t{1} << 20;  // read buffer of each column
constexpr int kMostLevels = 32;                     // most levels of nesting, as in check_json()

std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void require(const std::string& where, const arrow::Status& status) {
  if (status.ok()) return;
  if (status.IsOutOfMemory())
    fail(str(where, ": needs more than ", human_bytes(kMostMemory),
             " of memory at once: write it again with smaller pages and record batches"));
  fail(str(where, ": cannot be read: ", on_one_line(status.message())));
}

template <class T>
T value_of(const std::string& where, arrow::Result<T> result) {
  require(where, result.status());
  return std::move(result).ValueUnsafe();
}

// Runs `work`. Parquet's own exceptions become Errors, too.
template <class Work>
auto with_errors_of(const std::string& path, Work&& work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(str(path, ": cannot be read: ", on_one_line(error.what())));
  }
}

class LimitedMemory : public arrow::ProxyMemoryPool {
 public:
  LimitedMemory() : ProxyMemoryPool(arrow::system_memory_pool()) {}

  using ProxyMemoryPool::Allocate;
  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override {
    if (size > kMostMemory - bytes_allocated()) return arrow::Status::OutOfMemory("");
    return ProxyMemoryPool::Allocate(size, alignment, out);
  }
  using ProxyMemoryPool::Reallocate;
  arrow::Status Reallocate(int64_t old_size, int64_t size, int64_t alignment, uint8_t** out) override {
    if (size - old_size > kMostMemory - bytes_allocated()) return arrow::Status::OutOfMemory("");
    return ProxyMemoryPool::Reallocate(old_size, size, alignment, out);
  }
};

// Never destroyed: Arrow's threads may still release memory after a refused file has been closed.
LimitedMemory& memory() {
  static LimitedMemory& it = *new LimitedMemory;
  return it;
}

constexpr bool is_text(Type::type id) {
  return id == Type::STRING || id == Type::LARGE_STRING || id == Type::STRING_VIEW;
}

constexpr bool is_bytes(Type::type id) {
  return id == Type::BINARY || id == Type::LARGE_BINARY || id == Type::BINARY_VIEW;
}

constexpr bool has_elements(Type::type id) {
  return id == Type::LIST || id == Type::LARGE_LIST || id == Type::FIXED_SIZE_LIST || arrow::is_list_view(id);
}

// Whether the type is the form of images in data sets of Hugging Face.
bool is_image(const DataType& type) {
  const auto& structure = static_cast<const arrow::StructType&>(type);
  const auto bytes = structure.GetFieldByName("bytes"), path = structure.GetFieldByName("path");
  return type.num_fields() == 2 && bytes && path && is_bytes(bytes->type()->id()) &&
         is_text(path->type()->id());
}

const DataType& without_dictionary(const DataType& type) {
  return type.id() == Type::DICTIONARY ? *static_cast<const arrow::DictionaryType&>(type).value_type() : type;
}

// The reason why values of the type have no JSON form; "" if they have one.
std::string why_unreadable(const DataType& type, int levels = 1) {
  if (levels > kMostLevels) return str("more than ", kMostLevels, " levels of nesting");
  const Type::type id = type.id();
  if (id == Type::NA || id == Type::BOOL || is_text(id) || arrow::is_integer(id) || arrow::is_floating(id) ||
      arrow::is_decimal(id) || arrow::is_temporal(id))
    return "";
  if (id == Type::DICTIONARY) return why_unreadable(without_dictionary(type), levels + 1);
  if (id == Type::MAP) {
    const auto& map = static_cast<const arrow::MapType&>(type);
    if (!is_text(map.key_type()->id())) return "maps whose keys are not texts";
    return why_unreadable(*map.item_type(), levels + 1);
  }
  if (has_elements(id) || id == Type::STRUCT) {
    if (id == Type::STRUCT && is_image(type)) return "";
    for (const auto& field : type.fields())
      if (std::string why = why_unreadable(*field->type(), levels + 1); !why.empty()) return why;
    return "";
  }
  if (is_bytes(id) || id == Type::FIXED_SIZE_BINARY) return "bytes without a character encoding";
  return "values that JSON does not have";
}

// The JSON of a row. Its length is checked before each piece is added: the rows of a small file may have any
// length, because lists, dictionaries and texts may show a part of the file in many places.
class RowText {
 public:
  // `row` is the row's number in the file. Both texts must outlive the object.
  RowText(const std::string& path, int64_t row, std::string& json) : path_(path), row_(row), json_(json) {}

  // Throws an Error unless there is room for this many bytes.
  void check_room(size_t bytes) const {
    if (bytes > kMost - json_.size())
      fail(str(path_, " (row ", row_, "): has more than ", human_bytes(kMostJsonBytes),
               " as JSON, must be shorter"));
  }
  void operator+=(std::string_view piece) {
    check_room(piece.size());
    json_ += piece;
  }
  void operator+=(char piece) {
    check_room(1);
    json_ += piece;
  }

 private:
  static constexpr size_t kMost = kMostJsonBytes;

  const std::string& path_;
  int64_t row_;
  std::string& json_;
};

bool is_escaped(char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }

void write_text(std::string_view text, RowText& json) {
  constexpr char kHex[] = "0123456789abcdef";
  json += '"';
  for (;;) {
    const auto plain = static_cast<size_t>(std::find_if(text.begin(), text.end(), is_escaped) - text.begin());
    json += text.substr(0, plain);
    if (plain == text.size()) break;
    const char c = text[plain];
    text.remove_prefix(plain + 1);
    json += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      json += "u00";
      json += kHex[c >> 4];
      json += kHex[c & 15];
    } else {
      json += c;
    }
  }
  json += '"';
}

template <class Number>
void write_number(Number value, RowText& json) {
  std::array<char, 32> text;
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  json += std::string_view(text.data(), static_cast<size_t>(end - text.data()));
}

// Writes infinities like Python's JSON, as numbers that readers of the record refuse as too large.
void write_float(double value, RowText& json) {
  std::array<char, 32> text;
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  const std::string_view digits(text.data(), static_cast<size_t>(end - text.data()));
  if (std::isnan(value)) {
    json += "null";
  } else if (std::isinf(value)) {
    json += value > 0 ? "1e999" : "-1e999";
  } else {
    json += digits;
    if (digits.find_first_of(".e") == digits.npos) json += ".0";
  }
}

void write_value(const Array& array, int64_t row, RowText& json);

template <class List>
void write_list(const List& list, int64_t row, RowText& json) {
  const int64_t begin = list.value_offset(row), end = begin + list.value_length(row);
  json += '[';
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) json += ',';
    write_value(*list.values(), i, json);
  }
  json += ']';
}

void write_map(const arrow::MapArray& map, int64_t row, RowText& json) {
  const int64_t begin = map.value_offset(row), end = begin + map.value_length(row);
  json += '{';
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) json += ',';
    write_value(*map.keys(), i, json);
    json += ':';
    write_value(*map.items(), i, json);
  }
  json += '}';
}

void write_members(const std::vector<std::shared_ptr<arrow::Field>>& fields,
                   const std::function<const Array&(int)>& column, int64_t row, RowText& json) {
  json += '{';
  for (int i = 0; i < static_cast<int>(fields.size()); ++i) {
    if (i > 0) json += ',';
    write_text(fields[static_cast<size_t>(i)]->name(), json);
    json += ':';
    write_value(column(i), row, json);
  }
  json += '}';
}

// Writes the bytes of an image.
void write_bytes(std::string_view bytes, RowText& json) {
  json.check_room(bytes.size());  // base64 is longer still
  json += '"';
  json += to_base64(bytes);
  json += '"';
}

void write_struct(const arrow::StructArray& array, int64_t row, RowText& json) {
  std::vector<std::shared_ptr<Array>> members;
  write_members(
      array.type()->fields(), [&](int i) -> const Array& { return *members.emplace_back(array.field(i)); },
      row, json);
}

// Writes a value that is not null. Arrow calls Visit() with the array as its own type.
struct ValueWriter {
  int64_t row;
  RowText& json;

  template <class Typed>
  arrow::Status Visit(const Typed& array) {
    using T = typename Typed::TypeClass;
    if constexpr (std::is_same_v<T, arrow::BooleanType>) {
      json += array.Value(row) ? "true" : "false";
    } else if constexpr (arrow::is_integer_type<T>::value) {
      write_number(+array.Value(row), json);  // widened: a byte would be a character
    } else if constexpr (std::is_same_v<T, arrow::HalfFloatType>) {
      f16 value;
      value.bits = array.Value(row);
      write_float(static_cast<float>(value), json);
    } else if constexpr (arrow::is_floating_type<T>::value) {
      write_float(array.Value(row), json);
    } else if constexpr (std::is_same_v<T, arrow::DictionaryType>) {
      write_value(*array.dictionary(), array.GetValueIndex(row), json);
    } else if constexpr (std::is_same_v<T, arrow::MapType>) {
      write_map(array, row, json);
    } else if constexpr (std::is_same_v<T, arrow::StructType>) {
      write_struct(array, row, json);
    } else if constexpr (has_elements(T::type_id)) {
      write_list(array, row, json);
    } else if constexpr (is_text(T::type_id)) {
      write_text(array.GetView(row), json);
    } else if constexpr (is_bytes(T::type_id)) {
      write_bytes(array.GetView(row), json);
    } else {  // dates, times, decimals
      write_text(value_of("a value", array.GetScalar(row))->ToString(), json);
    }
    return arrow::Status::OK();
  }
};

void write_value(const Array& array, int64_t row, RowText& json) {
  if (array.IsNull(row)) {
    json += "null";
    return;
  }
  ValueWriter writer{row, json};
  require("a value", arrow::VisitArrayInline(array, &writer));
}

// The record batches of a file, in order.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  // Restricts the batches to the columns of the schema at these indices.
  virtual void select(const std::vector<int>& columns) = 0;
  virtual std::shared_ptr<RecordBatch> next() = 0;  // null at the end
  virtual double read_share() const = 0;            // share of the file that has been read, from 0 to 1
};

struct Source {
  std::string path;
  std::shared_ptr<arrow::io::ReadableFile> file;
};

class ParquetBatches : public Batches {
 public:
  explicit ParquetBatches(const Source& source) : path_(source.path) {
    parquet::ReaderProperties properties(&memory());
    properties.enable_buffered_stream();
    properties.set_buffer_size(kBufferBytes);
    parquet::ArrowReaderProperties to_arrow(/*use_threads=*/false);
    to_arrow.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    require(path_, builder.Open(source.file, properties));
    builder.memory_pool(&memory())->properties(to_arrow);
    require(path_, builder.Build(&file_));
    require(path_, file_->GetSchema(&schema_));
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  void select(const std::vector<int>& columns) override {
    const parquet::SchemaDescriptor& all = *metadata().schema();
    for (int leaf = 0; leaf < all.num_columns(); ++leaf) {
      const int root = all.group_node()->FieldIndex(*all.GetColumnRoot(leaf));
      if (std::find(columns.begin(), columns.end(), root) != columns.end()) leaves_.push_back(leaf);
    }
  }

  std::shared_ptr<RecordBatch> next() override {
    for (;;) {
      std::shared_ptr<RecordBatch> batch;
      if (reader_) require(path_, reader_->ReadNext(&batch));
      if (batch) {
        rows_ += batch->num_rows();
        return batch;
      }
      reader_.reset();
      if (group_ == file_->num_row_groups()) break;
      open_group(group_++);
    }
    check(rows_ == metadata().num_rows(), path_, ": has ", rows_, " rows, but its footer says ",
          metadata().num_rows(), ": it is damaged");
    return nullptr;
  }

  double read_share() const override {
    return static_cast<double>(rows_) / static_cast<double>(std::max<int64_t>(metadata().num_rows(), 1));
  }

 private:
  const parquet::FileMetaData& metadata() const { return *file_->parquet_reader()->metadata(); }

  void open_group(int group) {
    const auto about = metadata().RowGroup(group);
    const int64_t row_bytes = about->total_byte_size() / std::max<int64_t>(about->num_rows(), 1);
    file_->set_batch_size(std::clamp<int64_t>(kBatchBytes / std::max<int64_t>(row_bytes, 1), 1, kMostRows));
    reader_ = value_of(path_, file_->GetRecordBatchReader({group}, leaves_));
  }

  std::string path_;
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<int> leaves_;
  std::unique_ptr<arrow::RecordBatchReader> reader_;  // reader of the row group before group_
  int group_ = 0;
  int64_t rows_ = 0;
};

arrow::ipc::IpcReadOptions ipc_options(const std::vector<int>& columns) {
  arrow::ipc::IpcReadOptions options;
  options.memory_pool = &memory();
  options.use_threads = false;
  options.included_fields = columns;
  return options;
}

class FileBatches : public Batches {
 public:
  explicit FileBatches(Source source) : source_(std::move(source)) { select({}); }
  std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  void select(const std::vector<int>& columns) override {
    reader_ =
        value_of(source_.path, arrow::ipc::RecordBatchFileReader::Open(source_.file, ipc_options(columns)));
  }
  std::shared_ptr<RecordBatch> next() override {
    if (next_ == reader_->num_record_batches()) return nullptr;
    return value_of(source_.path, reader_->ReadRecordBatch(next_++));
  }
  double read_share() const override {
    return static_cast<double>(next_) / std::max(reader_->num_record_batches(), 1);
  }

 private:
  Source source_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int next_ = 0;
};

class StreamBatches : public Batches {
 public:
  explicit StreamBatches(Source source) : source_(std::move(source)) {
    size_ = value_of(source_.path, source_.file->GetSize());
    check_end();
    select({});
  }
  std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  void select(const std::vector<int>& columns) override {
    require(source_.path, source_.file->Seek(0));
    reader_ =
        value_of(source_.path, arrow::ipc::RecordBatchStreamReader::Open(source_.file, ipc_options(columns)));
  }
  std::shared_ptr<RecordBatch> next() override {
    std::shared_ptr<RecordBatch> batch;
    require(source_.path, reader_->ReadNext(&batch));
    return batch;
  }
  double read_share() const override {
    const int64_t at = value_of(source_.path, source_.file->Tell());
    return static_cast<double>(at) / static_cast<double>(std::max<int64_t>(size_, 1));
  }

 private:
  // Throws an Error unless the marker is there. Without it, a stream that is cut off between two batches
  // would look complete.
  void check_end() const {
    constexpr std::string_view kMarker("\xff\xff\xff\xff\0\0\0\0", 8);
    const int64_t begin = std::max<int64_t>(size_ - std::ssize(kMarker), 0);
    const auto end = value_of(source_.path, source_.file->ReadAt(begin, std::ssize(kMarker)));
    check(std::string_view(*end) == kMarker, source_.path,
          ": does not end with the marker of an Arrow stream: it is cut off, or was not closed");
  }

  Source source_;
  int64_t size_ = 0;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
};

std::string names_of(const std::vector<std::shared_ptr<arrow::Field>>& columns) {
  constexpr size_t kMost = 32;
  std::string text;
  for (size_t i = 0; i < std::min(columns.size(), kMost); ++i)
    text += str(i > 0 ? ", " : "", '"', columns[i]->name(), "\" (", columns[i]->type()->ToString(), ')');
  return columns.empty() ? "none" : on_one_line(text) + (columns.size() > kMost ? " ..." : "");
}

std::vector<int> columns_named(const std::string& path, const arrow::Schema& schema,
                               const std::vector<std::string>& names) {
  std::vector<int> columns;
  for (int i = 0; names.empty() && i < schema.num_fields(); ++i) columns.push_back(i);
  for (const std::string& name : names) {
    const std::vector<int> found = schema.GetAllFieldIndices(name);
    check(!found.empty(), path, ": has no column \"", name, "\"; its columns: ", names_of(schema.fields()));
    columns.insert(columns.end(), found.begin(), found.end());
  }
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  return columns;
}

void check_readable(const std::string& path, const arrow::Schema& schema, const std::vector<int>& columns) {
  std::string readable;
  for (const auto& field : schema.fields())
    if (why_unreadable(*field->type()).empty()) readable += (readable.empty() ? "" : ",") + field->name();
  for (const int i : columns) {
    const arrow::Field& field = *schema.field(i);
    const std::string why = why_unreadable(*field.type());
    if (why.empty()) continue;
    fail(str(path, ": the column \"", field.name(), "\" of type ", on_one_line(field.type()->ToString()),
             " holds ", why,
             readable.empty() ? ", and so does every other; a record needs text"
                              : ", which a record cannot: choose columns (--columns, data.columns), here \"" +
                                    readable + '"'));
  }
}

class ArrowTable : public TableInput {
 public:
  ArrowTable(const std::string& path, const std::vector<std::string>& columns) : path_(path) {
    const TableKind kind = table_kind_of(path);
    Source source{path, value_of(path, arrow::io::ReadableFile::Open(path, &memory()))};
    if (kind == TableKind::parquet)
      batches_ = std::make_unique<ParquetBatches>(source);
    else if (kind == TableKind::arrow_file)
      batches_ = std::make_unique<FileBatches>(std::move(source));
    else
      batches_ = std::make_unique<StreamBatches>(std::move(source));
    const auto schema = batches_->schema();
    const std::vector<int> chosen = columns_named(path, *schema, columns);
    check_readable(path, *schema, chosen);
    check(!chosen.empty(), path, ": has no columns");
    batches_->select(chosen);
  }

  bool next(std::string& json) override {
    while (!batch_ || row_ == batch_->num_rows())
      if (!with_errors_of(path_, [&] { return read_batch(); })) return false;
    json.clear();
    RowText text(path_, first_row_ + row_ + 1, json);
    write_members(
        batch_->schema()->fields(), [&](int i) -> const Array& { return *batch_->column(i); }, row_++, text);
    return true;
  }

  int64_t file_bytes() const override {
    const auto size = static_cast<double>(std::filesystem::file_size(path_));
    return static_cast<int64_t>(batches_->read_share() * size);
  }

 private:
  bool read_batch() {
    first_row_ += batch_ ? batch_->num_rows() : 0;
    row_ = 0;
    batch_.reset();  // released before the next batch needs memory
    batch_ = batches_->next();
    if (batch_) require(str(path_, " (after row ", first_row_, ')'), batch_->ValidateFull());
    return batch_ != nullptr;
  }

  std::string path_;
  std::unique_ptr<Batches> batches_;
  std::shared_ptr<RecordBatch> batch_;
  int64_t first_row_ = 0, row_ = 0;
};

}  // namespace

std::unique_ptr<TableInput> open_table(const std::string& path, const std::vector<std::string>& columns) {
  return with_errors_of(path, [&] { return std::make_unique<ArrowTable>(path, columns); });
}

}  // namespace flatshard
