//go:build unix && !linux

package store

func hugePages([]byte) {}
