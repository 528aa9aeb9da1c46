"""Whether a series of samples grows over time, or only varies."""
import math
import statistics

BLOCKS = 20
WARM_UP = 0.1  # share of the time at the start that does not count


def second_half(samples):
    """Those of the later half of the time."""
    middle = (samples[0][0] + samples[-1][0]) / 2
    return [sample for sample in samples if sample[0] >= middle]


def slope_per_hour(samples, step=0):
    """(mean, slope per hour, standard error of the slope) of [(seconds, value)]. Neighbouring samples resemble each
    other, so the line goes through the means of blocks of time. The slope of a series that is constant but for one
    step of the least size, `step`, in the middle is three errors, though its residuals are next to nothing."""
    begin, end = samples[0][0], samples[-1][0]
    begin += WARM_UP * (end - begin)
    blocks = [[] for _ in range(BLOCKS)]
    for at, value in samples:
        if at >= begin:
            blocks[min(int((at - begin) / (end - begin) * BLOCKS), BLOCKS - 1)].append((at, value))
    points = [tuple(map(statistics.fmean, zip(*block, strict=True))) for block in blocks if block]
    times, values = zip(*points, strict=True)
    slope, intercept = statistics.linear_regression(times, values)
    middle = statistics.fmean(times)
    residual = sum((value - slope * at - intercept) ** 2 for at, value in points) / (len(points) - 2)
    error = math.sqrt(residual / sum((at - middle) ** 2 for at in times))
    error = max(error, step / 2 / (end - begin))
    return statistics.fmean(values), slope * 3600, error * 3600
