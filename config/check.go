package config

// check looks for what no single parameter shows.
func (d *draft) check(c *Config) {
}
