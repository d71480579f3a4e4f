"""One trainer per mode. A trainer says what runs where; the algorithm is the system's."""
