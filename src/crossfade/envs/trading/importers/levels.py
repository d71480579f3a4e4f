"""Where contracts stood, year by year: prices of another contract are told by their level."""

import numpy as np

from ..bars import Bars
from ..contracts import Contract

# Lowest and highest price of the year in points, of the index where the future is younger.
_TABLE = """
year   ES         NQ           YM           RTY        GC         CL
2000   1254 1574  2174 4884    9650 11800   440 615    263 320    23 38
2001   944 1384   1089 2771    7900 11400   375 520    255 295    16 33
2002   768 1177   795 1710     7170 10700   325 525    277 350    17 34
2003   788 1112   938 1475     7400 10460   343 567    319 418    25 40
2004   1060 1217  1302 1635    9700 10870   515 656    371 458    32 56
2005   1136 1275  1394 1716    10000 10990  570 693    411 540    41 71
2006   1219 1431  1446 1824    10650 12580  666 800    513 732    54 79
2007   1363 1576  1710 2259    11940 14280  730 856    600 850    49 100
2008   739 1480   1018 2100    7400 13330   370 765    681 1033   32 148
2009   666 1130   1040 1882    6440 10580   342 635    801 1228   33 82
2010   1002 1262  1700 2240    9590 11630   580 795    1044 1432  64 92
2011   1068 1371  2035 2438    10360 12880  600 868    1308 1924  75 115
2012   1262 1474  2290 2879    12000 13660  727 868    1527 1798  77 111
2013   1450 1849  2630 3600    13270 16590  850 1165   1180 1698  85 113
2014   1732 2092  3415 4350    15330 18100  1040 1220  1130 1392  52 108
2015   1831 2134  3782 4740    15300 18360  1078 1296  1045 1308  34 63
2016   1802 2277  3888 4994    15450 19990  940 1393   1060 1378  26 55
2017   2228 2698  4863 6541    19680 24880  1340 1560  1146 1362  42 61
2018   2317 2947  5812 7720    21450 26970  1266 1742  1160 1370  42 77
2019   2438 3254  6110 8870    22600 28720  1330 1682  1266 1566  44 67
2020   2174 3772  6628 12980   18000 30640  966 2026   1450 2089  6 66
2021   3652 4808  12200 16767  29700 36700  1930 2459  1673 1966  47 86
2022   3502 4818  10440 16659  28600 36950  1640 2280  1618 2079  70 131
2023   3794 4841  10700 17000  31400 37800  1630 2080  1809 2152  63 95
2024   4702 6184  16200 22450  37100 45200  1900 2470  1985 2802  65 88
"""
WIDER = 1.35  # adjusted series and made-up ones lie outside by so much at most
PARENTS = {"MES": "ES", "MNQ": "NQ", "MYM": "YM", "M2K": "RTY", "MGC": "GC", "MCL": "CL"}


def _levels() -> dict[str, dict[int, tuple[float, float]]]:
    [head, *rows] = [line.split() for line in _TABLE.split("\n") if line]
    pairs = lambda row, i: (float(row[2 * i + 1]), float(row[2 * i + 2]))
    return {name: {int(row[0]): pairs(row, i) for row in rows} for i, name in enumerate(head[1:])}


LEVELS = _levels()
"""By contract and year."""


def misplaced(bars: Bars, name: str, contract: Contract) -> list[tuple[int, str]]:
    """The first bar of each year whose prices are not where the contract stood, and what is wrong with them."""
    found = []
    year = bars.date.astype("datetime64[D]").astype("datetime64[Y]").astype(int) + 1970
    for each in np.unique(year).tolist():
        of = np.flatnonzero(year == each)
        price = float(np.median(bars.close[of])) * contract.tick
        low, high = LEVELS.get(PARENTS.get(name, name), {}).get(each, (None, None))
        if low is not None and high is not None and not low / WIDER <= price <= high * WIDER:
            others = [other for other in LEVELS if other not in (name, PARENTS.get(name)) and _fits(other, each, price)]
            like = f", as those of {' and '.join(others)} were" if others else ""
            told = f"prices of {each} are around {price:g}{like}, while {name} traded between {low:g} and {high:g}"
            found.append((int(of[0]), told))
        elif not contract.price[0] <= price <= contract.price[1]:
            low, high = contract.price
            told = f"prices of {each} are around {price:g}, while those of {name} lie between {low:g} and {high:g}"
            found.append((int(of[0]), told))
    return found


def _fits(name: str, year: int, price: float) -> bool:
    low, high = LEVELS[name].get(year, (np.inf, -np.inf))
    return low <= price <= high
