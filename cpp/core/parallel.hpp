// Threads of their own for every call. Those of OpenMP would wait for the next call with a busy
// loop, which takes as much processor time as the work; its limits on their number are obeyed.
#pragma once

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "core/index.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#define LTLS_HAS_FORK
#include <pthread.h>
#endif

namespace ltls {

// Number of threads for scikit-learn's n_jobs: −1 is all cores, −2 all but one. Never exceeds the
// limit of OpenMP (OMP_NUM_THREADS, threadpoolctl).
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

// The lock of what outlives a call and is shared by threads, such as pools of scratch memory. It is
// held for moments only.
inline std::mutex& shared_state() {
    static std::mutex mutex;
    return mutex;
}

// A forked child inherits locks but not the threads that would release them, and deadlocks waiting
// for these. So a fork waits for the lock, and parent and child each release it.
inline void make_fork_safe() {
#if defined(LTLS_HAS_FORK)
    static const int registered =
        pthread_atfork([] { shared_state().lock(); }, [] { shared_state().unlock(); },
                       [] { shared_state().unlock(); });
    (void)registered;
#endif
}

// Calls work(part, parts) for every part, in up to `threads` threads. Where the system has no more
// threads, one does several parts.
template <class Work>
void in_team(int threads, Work&& work) {
    std::vector<std::thread> others;
    others.reserve(static_cast<std::size_t>(threads));
    int part = 1;
    try {
        for (; part < threads; ++part)
            others.emplace_back([&work, part, threads] { work(part, threads); });
    } catch (const std::system_error&) {
    }
    work(0, threads);
    for (; part < threads; ++part) work(part, threads);
    for (std::thread& other : others) other.join();
}

// Splits 0 … rows−1 into one range per thread and calls body(first, last) for each. Rethrows an
// exception of the body.
template <class Body>
void in_parallel(Index rows, int threads, Body&& body) {
    threads = static_cast<int>(std::min<Index>(threads, rows));
    if (threads <= 1) {
        if (rows > 0) body(Index{0}, rows);
        return;
    }
    std::exception_ptr error;
    std::mutex mutex;
    in_team(threads, [&](Index part, Index parts) {
        try {
            const Index first = rows * part / parts, last = rows * (part + 1) / parts;
            if (first < last) body(first, last);
        } catch (...) {
            const std::lock_guard lock(mutex);
            error = std::current_exception();
        }
    });
    if (error) std::rethrow_exception(error);
}

// Calls body(queue, task) for tasks 0 … tasks−1 of every queue. The tasks of a queue run in order
// and never concurrently. A thread picks the idle queue with the fewest tasks done, so that all
// queues finish at about the same time.
template <class Body>
void run_queues(Index queues, Index tasks, int threads, Body&& body) {
    struct Queue {
        Index done = 0;
        bool busy = false;
    };
    std::vector<Queue> all(static_cast<std::size_t>(queues));
    std::mutex mutex;
    const auto next = [&]() -> Queue* {
        const std::lock_guard lock(mutex);
        Queue* behind = nullptr;
        for (Queue& queue : all)
            if (!queue.busy && queue.done < tasks && (!behind || queue.done < behind->done))
                behind = &queue;
        if (behind) behind->busy = true;
        return behind;
    };
    in_parallel(std::min<Index>(queues, threads), threads, [&](Index, Index) {
        while (Queue* const queue = next()) {
            body(static_cast<Index>(queue - all.data()), queue->done);
            const std::lock_guard lock(mutex);
            ++queue->done;
            queue->busy = false;
        }
    });
}

}  // namespace ltls
