// Threads over the rows of a batch.
#pragma once

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "trellis.hpp"

#if defined(_OPENMP)
#include <omp.h>
#if (defined(__unix__) || defined(__APPLE__)) && (_OPENMP >= 201811 || __GNUC__ >= 9)
#define LTLS_HAS_OMP_PAUSE
#include <pthread.h>
#endif
#endif

namespace ltls {

// scikit-learn's n_jobs as a number of threads: 1 is one, −1 all cores, −2 all but one. What OpenMP
// is limited to (OMP_NUM_THREADS, threadpoolctl) is never exceeded.
inline int threads_for(int n_jobs) {
    if (n_jobs == 0)
        throw std::invalid_argument("n_jobs must not be 0; use 1 for one thread, -1 for all cores");
#if defined(_OPENMP)
    const int wanted = n_jobs > 0 ? n_jobs : omp_get_num_procs() + 1 + n_jobs;
    return std::clamp(wanted, 1, std::max(1, omp_get_max_threads()));
#else
    return 1;
#endif
}

// A child process inherits the record of OpenMP's thread pool but not its threads, and would wait
// for them for ever. Giving the pool back just before a fork lets both sides start their own when
// needed.
inline void make_fork_safe() {
#if defined(LTLS_HAS_OMP_PAUSE)
    static const int registered =
        pthread_atfork([] { omp_pause_resource_all(omp_pause_hard); }, nullptr, nullptr);
    (void)registered;
#endif
}

// Calls body(first, last) for parts of 0 … rows−1, one per thread, and passes on what it throws.
template <class Body>
void in_parallel(Index rows, int threads, Body&& body) {
    threads = static_cast<int>(std::min<Index>(threads, rows));
    if (threads <= 1) {
        if (rows > 0) body(Index{0}, rows);
        return;
    }
#if defined(_OPENMP)
    std::exception_ptr error;
#pragma omp parallel num_threads(threads)
    {
        // OpenMP may grant fewer threads than asked for.
        const Index parts = omp_get_num_threads(), part = omp_get_thread_num();
        try {
            const Index first = rows * part / parts, last = rows * (part + 1) / parts;
            if (first < last) body(first, last);
        } catch (...) {
#pragma omp critical
            error = std::current_exception();
        }
    }
    if (error) std::rethrow_exception(error);
#endif
}

// Calls body(line, turn) for turns 0 … turns−1 of every line, a line's in this order and never two
// at once. A thread takes the line that is furthest behind, so that all end at about the same time,
// and ends when no line is left that another thread is not at work on.
template <class Body>
void in_turns(Index lines, Index turns, int threads, Body&& body) {
    struct Line {
        Index done = 0;
        bool busy = false;
    };
    std::vector<Line> all(static_cast<std::size_t>(lines));
    std::mutex mutex;
    const auto next = [&]() -> Line* {
        const std::lock_guard lock(mutex);
        Line* behind = nullptr;
        for (Line& line : all)
            if (!line.busy && line.done < turns && (!behind || line.done < behind->done))
                behind = &line;
        if (behind) behind->busy = true;
        return behind;
    };
    in_parallel(std::min<Index>(lines, threads), threads, [&](Index, Index) {
        while (Line* const line = next()) {
            body(static_cast<Index>(line - all.data()), line->done);
            const std::lock_guard lock(mutex);
            ++line->done;
            line->busy = false;
        }
    });
}

}  // namespace ltls
