// Bindings of sparse vectors of labels, of the index of rows, and of how candidates are joined.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include "bindings/bindings.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"

using namespace nb::literals;

namespace ltls {
namespace {

// Checks that the ids of every feature are valid and increase.
template <class Id>
void check_ids(const Id* ids, const Index* ptr, Index n_features, Index n_vectors) {
    check_range("ids", ids, ptr[n_features], 0, n_vectors);
    for (Index feature = 0; feature < n_features; ++feature)
        for (Index i = ptr[feature] + 1; i < ptr[feature + 1]; ++i)
            if (ids[i - 1] >= ids[i])
                throw std::invalid_argument("ids of feature " + std::to_string(feature) +
                                            " must increase");
}

void check_ptr(const In<Index>& ptr, Index count) {
    check_at_least("the length of ptr", size(ptr.size()), 1);
    for (std::size_t i = 0; i + 1 < ptr.size(); ++i)
        if (ptr.data()[i] < 0 || ptr.data()[i] > ptr.data()[i + 1] || ptr.data()[i + 1] > count)
            throw std::invalid_argument("ptr of entry " + std::to_string(i) +
                                        " points outside values");
}

// Returns columns of the features that most vectors have: as many as take no more space than the
// vectors themselves, and save time.
template <class Id>
std::shared_ptr<const VectorColumns> columns_of(const SparseVectors& vectors) {
    constexpr Index lanes = SparseVectors::lanes;
    const Index length = vectors.n_chunks() * lanes;
    const auto entries = [&](Index feature) {
        return vectors.ptr[feature + 1] - vectors.ptr[feature];
    };
    std::vector<Index> many;
    Index room = 0;
    for (Index feature = 0; feature < vectors.n_features; ++feature) {
        room += entries(feature) * size(sizeof(Id) + sizeof(std::int8_t));
        if (SparseVectors::share * entries(feature) >= length && length > 0)
            many.push_back(feature);
    }
    std::stable_sort(many.begin(), many.end(),
                     [&](Index a, Index b) { return entries(a) > entries(b); });
    const Index count = length > 0 ? std::min(size(many.size()), room / length) : 0;
    auto columns = std::make_shared<VectorColumns>();
    columns->numbers.resize(static_cast<std::size_t>(vectors.n_features), -1);
    columns->values.resize(static_cast<std::size_t>(count * length));
    const Id* const ids = static_cast<const Id*>(vectors.ids);
    for (Index number = 0; number < count; ++number) {
        const Index feature = many[static_cast<std::size_t>(number)];
        columns->numbers[static_cast<std::size_t>(feature)] = static_cast<std::int32_t>(number);
        std::int8_t* const column = columns->values.data() + number * length;
        for (Index at = vectors.ptr[feature]; at < vectors.ptr[feature + 1]; ++at)
            column[ids[at]] = vectors.values[at];
    }
    columns->largest_scales.resize(static_cast<std::size_t>(vectors.n_chunks()));
    for (Index id = 0; id < vectors.n_vectors; ++id) {
        float& largest = columns->largest_scales[static_cast<std::size_t>(id / lanes)];
        largest = std::max(largest, vectors.scales[id]);
    }
    return columns;
}

SparseVectorArrays sparse_vectors(In<Index> ptr, AnyArray ids, In<std::int8_t> values,
                                  In<float> scales) {
    const bool wide = ids.dtype() == nb::dtype<std::uint32_t>();
    if (ids.ndim() != 1 || (!wide && ids.dtype() != nb::dtype<std::uint16_t>()))
        throw std::invalid_argument("ids must be a vector of uint16 or uint32");
    const Index count = size(values.size()), n_vectors = size(scales.size());
    check_size("ids", ids.size(), count);
    check_ptr(ptr, count);
    const Index n_features = size(ptr.size()) - 1;
    if (n_vectors > Index{1} << 31) throw std::invalid_argument("there are too many vectors");
    if (wide)
        check_ids(static_cast<const std::uint32_t*>(ids.data()), ptr.data(), n_features, n_vectors);
    else
        check_ids(static_cast<const std::uint16_t*>(ids.data()), ptr.data(), n_features, n_vectors);
    SparseVectors view{ptr.data(), ids.data(), wide,    values.data(), scales.data(),
                       n_vectors,  n_features, nullptr, nullptr,       nullptr};
    const auto columns = wide ? columns_of<std::uint32_t>(view) : columns_of<std::uint16_t>(view);
    view.columns = columns->numbers.data();
    view.column_values = columns->values.data();
    view.largest_scales = columns->largest_scales.data();
    return {view, ptr, ids, values, scales, columns};
}

// The inner products of as many rows of x, from row `first` on, as `ids` has, with given vectors.
void products(const SparseVectorArrays& vectors, const FeatureArrays& x, Index first,
              InMatrix<Index> ids, OutMatrix<float> out, int n_jobs) {
    const Index rows = size(ids.shape(0)), count = size(ids.shape(1));
    check_rows(x.view, first, rows, vectors.view.n_features);
    check_size("out", out.size(), rows * count);
    check_range("ids", ids.data(), rows * count, -1, vectors.view.n_vectors);
    const int threads = threads_for(n_jobs);
    const GilRelease release(rows * (vectors.view.n_vectors + 64 * x.view.longest_row));
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().products(vectors.view, x.view, first + begin, first + end, count,
                           ids.data() + begin * count, out.data() + begin * count);
    });
}

// The vectors with the largest inner products, and the inner products with some known vectors.
void largest_products(const SparseVectorArrays& vectors, const FeatureArrays& x, Index first,
                      OutMatrix<Index> ids, OutMatrix<float> out, int n_jobs,
                      std::optional<InMatrix<Index>> known,
                      std::optional<OutMatrix<float>> known_out) {
    const Index rows = size(ids.shape(0)), count = size(ids.shape(1));
    check_rows(x.view, first, rows, vectors.view.n_features);
    check_at_least("the number of vectors to find", count, 1);
    check_size("out", out.size(), rows * count);
    if (known.has_value() != known_out.has_value())
        throw std::invalid_argument("known and known_out must be given together");
    const Index n_known = known ? size(known->shape(1)) : 0;
    if (known) {
        check_size("known", known->shape(0), rows);
        check_size("known_out", known_out->size(), rows * n_known);
        check_range("known", known->data(), rows * n_known, -1, vectors.view.n_vectors);
    }
    const int threads = threads_for(n_jobs);
    const GilRelease release(rows * (vectors.view.n_vectors + 64 * x.view.longest_row));
    in_parallel(rows, threads, [&](Index begin, Index end) {
        kernels().largest_products(vectors.view, x.view, first + begin, first + end, count,
                                   ids.data() + begin * count, out.data() + begin * count, n_known,
                                   known ? known->data() + begin * n_known : nullptr,
                                   known ? known_out->data() + begin * n_known : nullptr);
    });
}

// Dense vectors that keep their arrays alive.
class DenseVectorArrays {
  public:
    DenseVectorArrays(In<std::int8_t> values, In<float> scales, In<float> offsets, Index n_pairs)
        : values_(values),
          scales_(scales),
          offsets_(offsets),
          view_{values.data(), scales.data(), offsets.data(), size(scales.size()), n_pairs} {
        check_at_least("n_pairs", n_pairs, 1);
        check_at_least("the number of vectors", view_.n_vectors, 1);
        constexpr Index lanes = DenseVectors::lanes;
        if (view_.n_vectors > Index{1} << 31 || n_pairs > Index{1} << 20)
            throw std::invalid_argument("there are too many vectors or features");
        const Index blocks = (view_.n_vectors + lanes - 1) / lanes;
        check_size("values", values.size(), blocks * 2 * lanes * n_pairs);
        check_size("offsets", offsets.size(), view_.n_vectors);
        for (Index i = 0; i < view_.n_vectors; ++i)
            if (!(scales.data()[i] > 0) || !std::isfinite(offsets.data()[i]))
                throw std::invalid_argument("scales must be above 0, and offsets finite");
    }

    void scores(InMatrix<std::int16_t> rows, In<float> units, InMatrix<Index> ids,
                OutMatrix<float> out, int n_jobs) const {
        const Index n = check_rows(rows, units), count = size(ids.shape(1));
        check_size("ids", ids.shape(0), n);
        check_size("out", out.size(), n * count);
        check_range("ids", ids.data(), n * count, -1, view_.n_vectors);
        const int threads = threads_for(n_jobs);
        const GilRelease release(n * count * view_.n_pairs);
        in_parallel(n, threads, [&](Index begin, Index end) {
            kernels().dense_scores(view_, rows.data() + begin * 2 * view_.n_pairs,
                                   units.data() + begin, end - begin, count,
                                   ids.data() + begin * count, out.data() + begin * count);
        });
    }

    void all_scores(InMatrix<std::int16_t> rows, In<float> units, OutMatrix<float> out,
                    int n_jobs) const {
        const Index n = check_rows(rows, units), count = view_.n_vectors;
        check_size("out", out.size(), n * count);
        const int threads = threads_for(n_jobs);
        const GilRelease release(n * count * view_.n_pairs);
        in_parallel(n, threads, [&](Index begin, Index end) {
            kernels().all_dense_scores(view_, rows.data() + begin * 2 * view_.n_pairs,
                                       units.data() + begin, end - begin,
                                       out.data() + begin * count);
        });
    }

    void highest(InMatrix<std::int16_t> rows, In<float> units, OutMatrix<Index> ids,
                 OutMatrix<float> out, int n_jobs) const {
        const Index n = check_rows(rows, units), count = size(ids.shape(1));
        check_size("ids", ids.shape(0), n);
        check_size("out", out.size(), n * count);
        check_at_least("the number of labels to find", count, 1);
        check_at_least("the number of vectors", view_.n_vectors, count);
        const int threads = threads_for(n_jobs);
        const GilRelease release(n * view_.n_vectors * view_.n_pairs);
        in_parallel(n, threads, [&](Index begin, Index end) {
            kernels().highest_scores(view_, rows.data() + begin * 2 * view_.n_pairs,
                                     units.data() + begin, end - begin, count,
                                     ids.data() + begin * count, out.data() + begin * count);
        });
    }

  private:
    // Checks that no sum of products can overflow. Returns the number of rows.
    Index check_rows(const InMatrix<std::int16_t>& rows, const In<float>& units) const {
        const Index n = size(rows.shape(0)), width = 2 * view_.n_pairs;
        check_size("a row", rows.shape(1), width);
        check_size("units", units.size(), n);
        for (Index row = 0; row < n; ++row) {
            Index total = 0;
            for (Index j = row * width; j < (row + 1) * width; ++j)
                total += rows.data()[j] < 0 ? -rows.data()[j] : rows.data()[j];
            if (total > largest_total)
                throw std::invalid_argument("rows must have sums of at most " +
                                            std::to_string(largest_total));
            if (!(units.data()[row] > 0)) throw std::invalid_argument("units must be above 0");
        }
        return n;
    }

    static constexpr Index largest_total = 10'000'000;

    const In<std::int8_t> values_;
    const In<float> scales_, offsets_;
    const DenseVectors view_;
};

// A set of labels that is emptied in constant time.
class SeenLabels {
  public:
    explicit SeenLabels(Index most) {
        std::size_t slots = 16;
        while (slots < 2 * static_cast<std::size_t>(most)) slots *= 2;
        slots_.assign(slots, {0, -1});
    }
    void clear() { ++time_; }
    // The place of a label: that which it was added with, or −1 if it is new and `place` is its.
    Index add(Index label, Index place) {
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t at = hash(label) & mask;; at = (at + 1) & mask) {
            Slot& slot = slots_[at];
            if (slot.time != time_) {
                slot = {time_, label, place};
                return -1;
            }
            if (slot.label == label) return slot.place;
        }
    }
    Index find(Index label) const {
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t at = hash(label) & mask;; at = (at + 1) & mask) {
            const Slot& slot = slots_[at];
            if (slot.time != time_) return -1;
            if (slot.label == label) return slot.place;
        }
    }

  private:
    struct Slot {
        Index time, label, place = 0;
    };
    static std::size_t hash(Index label) {
        return static_cast<std::size_t>(static_cast<std::uint64_t>(label) * 0x9e3779b97f4a7c15 >>
                                        32);
    }
    std::vector<Slot> slots_;
    Index time_ = 1;
};

// Labelled rows, and an index of them by feature.
class LabelledRows {
  public:
    LabelledRows(In<Index> ptr, In<std::int32_t> features, In<std::int8_t> values, In<float> scales,
                 In<Index> label_ptr, In<Index> labels, Index n_features, Index n_labels)
        : ptr_(ptr),
          features_(features),
          values_(values),
          scales_(scales),
          label_ptr_(label_ptr),
          labels_(labels),
          rows_{ptr.data(),    features.data(),     values.data(),
                scales.data(), size(scales.size()), n_features},
          n_labels_(n_labels) {
        check_size("ptr", ptr.size(), rows_.n_rows + 1);
        check_size("features", features.size(), size(values.size()));
        check_size("label_ptr", label_ptr.size(), rows_.n_rows + 1);
        check_ptr(ptr, size(values.size()));
        check_ptr(label_ptr, size(labels.size()));
        check_range("features", features.data(), size(features.size()), 0, n_features);
        check_range("labels", labels.data(), size(labels.size()), 0, n_labels);
        for (Index row = 0; row < rows_.n_rows; ++row)
            most_labels_ =
                std::max(most_labels_, label_ptr.data()[row + 1] - label_ptr.data()[row]);
        const ReleasedGil release;
        build();
    }

    // The k nearest rows of as many rows of x, from row `first` on, as `nearest` has.
    void nearest(const FeatureArrays& x, Index first, OutMatrix<Index> nearest,
                 OutMatrix<float> cosines, int n_jobs) const {
        const Index rows = size(nearest.shape(0)), k = size(nearest.shape(1));
        check_rows(x.view, first, rows, rows_.n_features + x.view.intercept);
        check_at_least("the number of rows to find", k, 1);
        check_size("cosines", cosines.size(), rows * k);
        const int threads = threads_for(n_jobs);
        const RowIndex index{index_ptr_.data(), index_rows_.data(),      index_values_.data(),
                             counts_.data(),    inverse_lengths_.data(), n_blocks_};
        const ReleasedGil release;
        in_parallel(rows, threads, [&](Index begin, Index end) {
            kernels().nearest_rows(rows_, index, x.view, first + begin, first + end, k,
                                   nearest.data() + begin * k, cosines.data() + begin * k);
        });
    }

    // The labels of given rows with the largest sums of cosine³, divided by the sum over all
    // labels; in any order, −1 and 0 if there are fewer.
    void votes(InMatrix<Index> nearest, InMatrix<float> cosines, OutMatrix<Index> labels,
               OutMatrix<float> shares, int n_jobs) const {
        const Index rows = size(nearest.shape(0)), k = size(nearest.shape(1));
        const Index count = size(labels.shape(1));
        check_size("cosines", cosines.size(), rows * k);
        check_size("labels", labels.size(), rows * count);
        check_size("shares", shares.size(), rows * count);
        check_range("nearest", nearest.data(), rows * k, -1, rows_.n_rows);
        const int threads = threads_for(n_jobs);
        const GilRelease release(rows * k * most_labels_);
        in_parallel(rows, threads, [&](Index begin, Index end) {
            SeenLabels seen(std::min(k * most_labels_, n_labels_));
            std::vector<Vote> found;
            for (Index i = begin; i < end; ++i) {
                collect(nearest.data() + i * k, cosines.data() + i * k, k, seen, found);
                double total = 0;
                for (const Vote& vote : found) total += static_cast<double>(vote.weight);
                const auto n = std::min<Index>(count, size(found.size()));
                if (n < size(found.size()))
                    std::nth_element(found.begin(), found.begin() + n, found.end(),
                                     [](const Vote& a, const Vote& b) {
                                         return a.weight != b.weight ? a.weight > b.weight
                                                                     : a.label < b.label;
                                     });
                for (Index j = 0; j < count; ++j) {
                    const Vote vote = j < n ? found[static_cast<std::size_t>(j)] : Vote{-1, 0.0f};
                    labels.data()[i * count + j] = vote.label;
                    shares.data()[i * count + j] =  // weights may all round to 0
                        vote.weight > 0 ? vote.weight / static_cast<float>(total) : 0.0f;
                }
            }
        });
    }

  private:
    struct Vote {
        Index label;
        float weight;
    };

    // Sums up the votes of rows for every label.
    void collect(const Index* nearest, const float* cosines, Index k, SeenLabels& seen,
                 std::vector<Vote>& found) const {
        found.clear();
        seen.clear();
        for (Index j = 0; j < k && nearest[j] >= 0; ++j) {
            const float weight = cosines[j] * cosines[j] * cosines[j];
            for (Index at = label_ptr_.data()[nearest[j]]; at < label_ptr_.data()[nearest[j] + 1];
                 ++at) {
                const Index place = seen.add(labels_.data()[at], size(found.size()));
                if (place < 0)
                    found.push_back({labels_.data()[at], weight});
                else
                    found[static_cast<std::size_t>(place)].weight += weight;
            }
        }
    }

    // Lists the rows of every feature, block by block, by counting sort.
    void build() {
        const Index n_features = rows_.n_features;
        n_blocks_ = (rows_.n_rows + RowIndex::block - 1) / RowIndex::block;
        counts_.assign(static_cast<std::size_t>(n_features), 0);
        inverse_lengths_.resize(static_cast<std::size_t>(rows_.n_rows));
        index_ptr_.assign(static_cast<std::size_t>(n_blocks_ * (n_features + 1)), 0);
        for (Index row = 0; row < rows_.n_rows; ++row) {
            double squares = 0;
            for (Index at = rows_.ptr[row]; at < rows_.ptr[row + 1]; ++at) {
                const double value = static_cast<double>(rows_.values[at]);
                squares += value * value;
                ++counts_[static_cast<std::size_t>(rows_.features[at])];
                ++index_ptr_[static_cast<std::size_t>(row / RowIndex::block * (n_features + 1) +
                                                      rows_.features[at] + 1)];
            }
            const double length = std::sqrt(squares) * static_cast<double>(rows_.scales[row]);
            inverse_lengths_[static_cast<std::size_t>(row)] =
                length > 0 ? static_cast<float>(1 / length) : 0.0f;
        }
        // A block begins where the one before ends.
        Index total = 0;
        for (Index block = 0; block < n_blocks_; ++block)
            for (Index f = 0; f <= n_features; ++f) {
                Index& at = index_ptr_[static_cast<std::size_t>(block * (n_features + 1) + f)];
                total += at;
                at = total;
            }
        index_rows_.resize(static_cast<std::size_t>(total));
        index_values_.resize(static_cast<std::size_t>(total));
        std::vector<Index> next(index_ptr_);
        for (Index row = 0; row < rows_.n_rows; ++row)
            for (Index at = rows_.ptr[row]; at < rows_.ptr[row + 1]; ++at) {
                const auto to = static_cast<std::size_t>(next[static_cast<std::size_t>(
                    row / RowIndex::block * (n_features + 1) + rows_.features[at])]++);
                index_rows_[to] = static_cast<std::uint16_t>(row % RowIndex::block);
                const float unit =
                    rows_.scales[row] * inverse_lengths_[static_cast<std::size_t>(row)];
                const float value = 127 * (static_cast<float>(rows_.values[at]) * unit);
                index_values_[to] =
                    static_cast<std::int8_t>(std::clamp(std::nearbyint(value), -127.0f, 127.0f));
            }
    }

    const In<Index> ptr_;
    const In<std::int32_t> features_;
    const In<std::int8_t> values_;
    const In<float> scales_;
    const In<Index> label_ptr_, labels_;
    const SparseRows rows_;
    const Index n_labels_;
    Index most_labels_ = 1;  // of a row
    Index n_blocks_ = 0;
    std::vector<Index> index_ptr_, counts_;
    std::vector<std::uint16_t> index_rows_;
    std::vector<std::int8_t> index_values_;
    std::vector<float> inverse_lengths_;
};

// Writes the distinct labels of every row of several matrices, in order of appearance, padded with
// −1. Returns the most of a row.
Index unite(nb::list matrices, OutMatrix<Index> out) {
    const Index rows = size(out.shape(0)), width = size(out.shape(1));
    std::vector<InMatrix<Index>> parts;
    Index total = 0;
    for (nb::handle each : matrices) {
        parts.push_back(nb::cast<InMatrix<Index>>(each));
        check_size("a matrix", parts.back().shape(0), rows);
        total += size(parts.back().shape(1));
    }
    check_at_least("the number of columns of out", width, total);
    SeenLabels seen(total);
    Index most = 0;
    for (Index row = 0; row < rows; ++row) {
        seen.clear();
        Index* const to = out.data() + row * width;
        Index count = 0;
        for (const InMatrix<Index>& part : parts) {
            const Index n = size(part.shape(1));
            for (Index j = row * n; j < (row + 1) * n; ++j)
                if (part.data()[j] >= 0 && seen.add(part.data()[j], 0) < 0)
                    to[count++] = part.data()[j];
        }
        most = std::max(most, count);
        std::fill(to + count, to + width, -1);
    }
    return most;
}

// Writes the value that each of `ids` has among `keys`, which are distinct; `missing` if none.
void look_up(InMatrix<Index> ids, InMatrix<Index> keys, InMatrix<float> values, float missing,
             OutMatrix<float> out) {
    const Index rows = size(ids.shape(0)), count = size(ids.shape(1)), n = size(keys.shape(1));
    check_size("keys", keys.shape(0), rows);
    check_size("values", values.size(), rows * n);
    check_size("out", out.size(), rows * count);
    SeenLabels seen(n);
    for (Index row = 0; row < rows; ++row) {
        seen.clear();
        for (Index j = row * n; j < (row + 1) * n; ++j)
            if (keys.data()[j] >= 0) seen.add(keys.data()[j], j);
        for (Index j = row * count; j < (row + 1) * count; ++j) {
            const Index at = ids.data()[j] < 0 ? -1 : seen.find(ids.data()[j]);
            out.data()[j] = at < 0 ? missing : values.data()[at];
        }
    }
}

// Writes the k labels with the highest scores, best first; ties go to the smaller label. Labels of
// −1 are left out, and fill up what is missing, with −∞.
void select(InMatrix<Index> ids, InMatrix<float> scores, OutMatrix<Index> best,
            OutMatrix<float> best_scores) {
    const Index rows = size(ids.shape(0)), count = size(ids.shape(1)), k = size(best.shape(1));
    check_size("scores", scores.size(), rows * count);
    check_size("best", best.shape(0), rows);
    check_size("best_scores", best_scores.size(), rows * k);
    struct Scored {
        float score;
        Index label;
    };
    std::vector<Scored> found;
    for (Index row = 0; row < rows; ++row) {
        found.clear();
        for (Index j = row * count; j < (row + 1) * count; ++j)
            if (ids.data()[j] >= 0) found.push_back({scores.data()[j], ids.data()[j]});
        const auto n = static_cast<std::ptrdiff_t>(std::min<Index>(k, size(found.size())));
        std::partial_sort(found.begin(), found.begin() + n, found.end(),
                          [](const Scored& a, const Scored& b) {
                              return a.score != b.score ? a.score > b.score : a.label < b.label;
                          });
        for (Index j = 0; j < k; ++j) {
            const bool exists = j < n;
            best.data()[row * k + j] = exists ? found[static_cast<std::size_t>(j)].label : -1;
            best_scores.data()[row * k + j] = exists ? found[static_cast<std::size_t>(j)].score
                                                     : -std::numeric_limits<float>::infinity();
        }
    }
}

}  // namespace

void bind_vectors(nb::module_& module) {
    nb::class_<SparseVectorArrays>(module, "SparseVectors")
        .def(
            "__init__",
            [](SparseVectorArrays* self, In<Index> ptr, AnyArray ids, In<std::int8_t> values,
               In<float> scales) {
                new (self) SparseVectorArrays(sparse_vectors(ptr, ids, values, scales));
            },
            "ptr"_a, "ids"_a, "values"_a, "scales"_a)
        .def("products", &products, "x"_a, "first"_a, "ids"_a, "out"_a, "n_jobs"_a)
        .def("largest_products", &largest_products, "x"_a, "first"_a, "ids"_a, "out"_a, "n_jobs"_a,
             "known"_a.none() = nb::none(), "known_out"_a.none() = nb::none());
    nb::class_<DenseVectorArrays>(module, "DenseVectors")
        .def(nb::init<In<std::int8_t>, In<float>, In<float>, Index>(), "values"_a, "scales"_a,
             "offsets"_a, "n_pairs"_a)
        .def("scores", &DenseVectorArrays::scores, "rows"_a, "units"_a, "ids"_a, "out"_a,
             "n_jobs"_a)
        .def("all_scores", &DenseVectorArrays::all_scores, "rows"_a, "units"_a, "out"_a, "n_jobs"_a)
        .def("highest", &DenseVectorArrays::highest, "rows"_a, "units"_a, "ids"_a, "out"_a,
             "n_jobs"_a);
    nb::class_<LabelledRows>(module, "LabelledRows")
        .def(nb::init<In<Index>, In<std::int32_t>, In<std::int8_t>, In<float>, In<Index>, In<Index>,
                      Index, Index>(),
             "ptr"_a, "features"_a, "values"_a, "scales"_a, "label_ptr"_a, "labels"_a,
             "n_features"_a, "n_labels"_a)
        .def("nearest", &LabelledRows::nearest, "x"_a, "first"_a, "nearest"_a, "cosines"_a,
             "n_jobs"_a)
        .def("votes", &LabelledRows::votes, "nearest"_a, "cosines"_a, "labels"_a, "shares"_a,
             "n_jobs"_a);
    module.def("unite", &unite, "matrices"_a, "out"_a);
    module.def("look_up", &look_up, "ids"_a, "keys"_a, "values"_a, "missing"_a, "out"_a);
    module.def("select", &select, "ids"_a, "scores"_a, "best"_a, "best_scores"_a);
    module.def(
        "add_exponentials",
        [](InMatrix<float> scores, OutMatrix<float> totals) {
            check_size("totals", totals.size(), size(scores.size()));
            kernels().add_exponentials(scores.data(), size(scores.size()), totals.data());
        },
        "scores"_a, "totals"_a);
}

}  // namespace ltls
