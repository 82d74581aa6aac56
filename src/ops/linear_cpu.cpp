// Linear's products by oneDNN, through its C interface: with it our side of a call allocates nothing.
//
// Weights are kept in the layout that the library asks for (format_tag::any), which is the same for every row count;
// a reorder fills it. Scratch is the arena's (scratchpad mode user), as large as the neediest product's.
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/work.h"
#include "ops/linear.h"
#include "ops/linear_products.h"

namespace isobath {

namespace {

void check(dnnl_status_t status, const char* step) {
  require(status == dnnl_success, "linear: oneDNN could not {} ({})", step, dnnl_status2str(status));
}

// An owned handle of the library.
template <class Handle, dnnl_status_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <class Handle, dnnl_status_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = Owned<dnnl_memory_t, dnnl_memory_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using Description = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Attributes = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;

// owned<Memory>("make a memory", dnnl_memory_create, arguments...)
template <class T, class Create, class... Args>
T owned(const char* step, Create create, Args... args) {
  typename T::pointer handle = nullptr;
  check(create(&handle, args...), step);
  return T(handle);
}

struct Runtime {
  Engine engine = owned<Engine>("make an engine", dnnl_engine_create, dnnl_cpu, size_t(0));
  Stream stream = owned<Stream>("make a stream", dnnl_stream_create, engine.get(), unsigned(dnnl_stream_default_flags));
};
const Runtime& runtime() {
  static const Runtime instance;
  return instance;
}

dnnl_memory_desc_t matrix(int64_t rows, int64_t cols, dnnl_format_tag_t tag) {
  const dnnl_dims_t lengths = {rows, cols};
  dnnl_memory_desc_t desc;
  check(dnnl_memory_desc_init_by_tag(&desc, 2, lengths, dnnl_f32, tag), "describe a matrix");
  return desc;
}

Memory unbound_memory(const dnnl_memory_desc_t& desc) {
  return owned<Memory>("make a memory", dnnl_memory_create, &desc, runtime().engine.get(), static_cast<void*>(nullptr));
}

// The library's handles are not const, whatever it does with what they point to.
void point_at(const Memory& memory, const void* at) {
  check(dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(at)), "point a memory at its data");
}

// c (+)= a b, described for one set of sizes.
struct Product {
  Primitive primitive;
  Memory a, c;

  Product(dnnl_memory_desc_t a_desc, dnnl_memory_desc_t b_desc, dnnl_memory_desc_t c_desc, bool accumulate) {
    const Attributes attributes = owned<Attributes>("make attributes", dnnl_primitive_attr_create);
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes.get(), dnnl_scratchpad_mode_user), "set the scratch mode");
    if (accumulate) {
      const PostOps sum = owned<PostOps>("make a post-op", dnnl_post_ops_create);
      check(dnnl_post_ops_append_sum(sum.get(), 1.0f), "append a sum");
      check(dnnl_primitive_attr_set_post_ops(attributes.get(), sum.get()), "set the sum");
    }
    dnnl_matmul_desc_t desc;
    check(dnnl_matmul_desc_init(&desc, &a_desc, &b_desc, nullptr, &c_desc), "describe a product");
    const Description description = owned<Description>("choose a product", dnnl_primitive_desc_create, &desc,
                                                       attributes.get(), runtime().engine.get(), nullptr);
    primitive = owned<Primitive>("build a product", dnnl_primitive_create, description.get());
    a = unbound_memory(a_desc);
    c = unbound_memory(c_desc);
  }

  // The primitive's own: one more for each product would take as much memory as all the rest of it.
  const_dnnl_primitive_desc_t description() const {
    const_dnnl_primitive_desc_t of_primitive = nullptr;
    check(dnnl_primitive_get_primitive_desc(primitive.get(), &of_primitive), "describe a primitive");
    return of_primitive;
  }
  const dnnl_memory_desc_t& b_desc() const {
    return *dnnl_primitive_desc_query_md(description(), dnnl_query_weights_md, 0);
  }
  int64_t scratch_bytes() const {
    return int64_t(dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(description(), dnnl_query_scratchpad_md, 0)));
  }
  std::string kernel() const {
    const char* name = nullptr;
    check(dnnl_primitive_desc_query(description(), dnnl_query_impl_info_str, 0, &name), "name its kernel");
    return name;
  }

  void run(const Memory& b, const Memory& scratch, float* c_at, const float* a_at) const {
    point_at(a, a_at);
    point_at(c, c_at);
    const std::array<dnnl_exec_arg_t, 4> args{{{DNNL_ARG_SRC, a.get()},
                                               {DNNL_ARG_WEIGHTS, b.get()},
                                               {DNNL_ARG_DST, c.get()},
                                               {DNNL_ARG_SCRATCHPAD, scratch.get()}}};
    check(dnnl_primitive_execute(primitive.get(), runtime().stream.get(), int(args.size()), args.data()),
          "run a product");
  }
};

// W in the library's layout for one direction, and the way there from row-major. With a room it is packed when it is
// asked for, and gone when another has taken the room.
struct PackedWeights {
  PackingRoom* room;
  View<std::byte> bytes;  // without a room
  Memory plain, packed;
  Primitive reorder;

  PackedWeights(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to, PackingRoom* room)
      : room(room), plain(unbound_memory(from)), packed(unbound_memory(to)) {
    dnnl_engine_t engine = runtime().engine.get();
    const Description description =
        owned<Description>("choose a reorder", dnnl_reorder_primitive_desc_create, &from, engine, &to, engine, nullptr);
    reorder = owned<Primitive>("build a reorder", dnnl_primitive_create, description.get());
  }

  void plan(Plan& plan, const std::string& name) {
    dnnl_memory_desc_t const* desc = nullptr;
    check(dnnl_memory_get_memory_desc(packed.get(), &desc), "describe packed weights");
    const int64_t size = int64_t(dnnl_memory_desc_get_size(desc));
    if (room == nullptr)
      plan.add(name, bytes, {size});
    else
      room->needed = std::max(room->needed, size);
  }
  void note(const float* W) {
    point_at(plain, W);
    if (room == nullptr)
      fill(bytes.data);
    else if (room->holder == this)
      room->holder = nullptr;
  }
  // `plain_bytes`: of W, for the account.
  const Memory& ready(int64_t plain_bytes) {
    if (room == nullptr || room->holder == this) return packed;
    const Work work("linear_pack", {.bytes = 2 * plain_bytes});
    fill(room->bytes.data);
    room->holder = this;
    return packed;
  }

 private:
  void fill(std::byte* at) const {
    point_at(packed, at);
    const std::array<dnnl_exec_arg_t, 2> args{{{DNNL_ARG_FROM, plain.get()}, {DNNL_ARG_TO, packed.get()}}};
    check(dnnl_primitive_execute(reorder.get(), runtime().stream.get(), int(args.size()), args.data()), "pack weights");
  }
};

}  // namespace

namespace cpu {

struct LinearProducts::State {
  std::vector<Product> forward, backward_input, backward_weight;  // one per row count
  std::vector<Memory> x;                                          // (M,K) as the right factor of dW
  std::unique_ptr<PackedWeights> for_forward, for_backward;
  View<std::byte> scratch;
  Memory scratch_memory;
  int64_t scratch_bytes = 1, plain_bytes;

  State(int64_t N, int64_t K, std::span<const int64_t> rows, bool backward, PackingRoom* room)
      : plain_bytes(N * K * int64_t(sizeof(float))) {
    const dnnl_memory_desc_t W = matrix(N, K, dnnl_ab), W_transposed = matrix(K, N, dnnl_ba);
    for_forward = build(forward, rows, K, N, W_transposed, room);
    if (backward) {
      for_backward = build(backward_input, rows, N, K, W, room);
      for (const int64_t M : rows) {
        if (M > kMostWeightRows) break;
        backward_weight.emplace_back(matrix(N, M, dnnl_ba), matrix(M, K, dnnl_ab), W, /*accumulate=*/true);
        x.push_back(unbound_memory(matrix(M, K, dnnl_ab)));
      }
    }
    for (const auto* products : {&forward, &backward_input, &backward_weight})
      for (const Product& product : *products) scratch_bytes = std::max(scratch_bytes, product.scratch_bytes());
    const dnnl_dims_t length = {scratch_bytes};
    dnnl_memory_desc_t desc;
    check(dnnl_memory_desc_init_by_tag(&desc, 1, length, dnnl_u8, dnnl_a), "describe scratch");
    scratch_memory = unbound_memory(desc);
  }

  // Products (M,in) (in,out) for every M; the largest M decides the layout of the weights.
  static std::unique_ptr<PackedWeights> build(std::vector<Product>& products, std::span<const int64_t> rows, int64_t in,
                                              int64_t out, const dnnl_memory_desc_t& W, PackingRoom* room) {
    const Product largest(matrix(rows.back(), in, dnnl_ab), matrix(in, out, dnnl_format_tag_any),
                          matrix(rows.back(), out, dnnl_ab), false);
    for (const int64_t M : rows)
      products.emplace_back(matrix(M, in, dnnl_ab), largest.b_desc(), matrix(M, out, dnnl_ab), /*accumulate=*/false);
    return std::make_unique<PackedWeights>(W, largest.b_desc(), room);
  }
};

LinearProducts::LinearProducts(int64_t N, int64_t K, std::span<const int64_t> rows, bool backward, PackingRoom* room)
    : state_(std::make_unique<State>(N, K, rows, backward, room)) {}
LinearProducts::~LinearProducts() = default;

void LinearProducts::plan(Plan& plan, const std::string& name) {
  state_->for_forward->plan(plan, name + ".packed");
  if (state_->for_backward) state_->for_backward->plan(plan, name + ".packed_backward");
  plan.add_scratch(name + ".scratch", state_->scratch, state_->scratch_bytes);
}

bool LinearProducts::bound() const { return !state_->scratch.empty(); }

void LinearProducts::pack(const float* W) {
  state_->for_forward->note(W);
  if (state_->for_backward) state_->for_backward->note(W);
  point_at(state_->scratch_memory, state_->scratch.data);
}

void LinearProducts::forward(size_t place, float* y, const float* x) {
  state_->forward[place].run(state_->for_forward->ready(state_->plain_bytes), state_->scratch_memory, y, x);
}

void LinearProducts::backward_input(size_t place, float* dx, const float* dy) {
  state_->backward_input[place].run(state_->for_backward->ready(state_->plain_bytes), state_->scratch_memory, dx, dy);
}

void LinearProducts::backward_weight(size_t place, float* dW, const float* dy, const float* x) {
  point_at(state_->x[place], x);
  state_->backward_weight[place].run(state_->x[place], state_->scratch_memory, dW, dy);
}

}  // namespace cpu

std::string linear_library() {
  const Product product(matrix(256, 384, dnnl_ab), matrix(384, 384, dnnl_format_tag_any), matrix(256, 384, dnnl_ab),
                        false);
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{} {}", version->major, version->minor, version->patch, product.kernel());
}

}  // namespace isobath
