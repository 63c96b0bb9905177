package mgmd

// PrepareRequest is what a server that changes the configuration says to one that has a generation.
func PrepareRequest(generation uint32, raw []byte) string {
	return string(prepareRequest(generation, raw))
}
